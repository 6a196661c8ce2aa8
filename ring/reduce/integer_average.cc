// The average of integers. The sum of all contributions is exact, in an accumulator that is wider than the elements, so
// its bits depend on no order, algorithm or instruction set, and the result always fits. One loop for all processors:
// such averages are rare and small (counts, labels).

#include <algorithm>
#include <cstring>
#include <limits>

#include "horo/base/check.h"
#include "ring/reduce/kernels.h"

namespace horo {
namespace {

__extension__ using Int128 = __int128;

// kLimit: what a contribution times its factor is kept to. The sums of 2^31 such contributions fit.
template <class T>
constexpr T kLimit = T{1} << (sizeof(T) == 8 ? 32 : 96);

// A double, truncated toward zero and kept between two numbers; a NaN becomes 0.
template <class T>
T truncated(double value, T least, T most) {
  if (value >= static_cast<double>(most)) return most;
  if (value <= static_cast<double>(least)) return least;
  return value == value ? static_cast<T>(value) : T{0};
}

template <class Int, class T>
class IntegerAverage {
 public:
  static void run(const TreeJob& job) {
    T* const sums = reinterpret_cast<T*>(job.stack);
    for (std::size_t begin = 0; begin < job.count; begin += kKernelBlock) {
      const std::size_t count = std::min(job.count - begin, kKernelBlock);
      std::fill_n(sums, count, T{0});
      for (std::size_t at = 0; at < job.steps; ++at) {
        if (job.tree[at].input != TreeStep::kJoin) add(sums, job.inputs[job.tree[at].input], begin, count, job);
      }
      for (std::size_t k = 0; k < job.out_count; ++k) store(sums, job.outs[k], begin, count, job);
    }
  }

 private:
  template <class Stored>
  static Stored at(const std::byte* data, std::size_t i) {
    Stored value;
    std::memcpy(&value, data + i * sizeof(value), sizeof(value));
    return value;
  }

  template <class Stored>
  static void put(std::byte* data, std::size_t i, Stored value) {
    std::memcpy(data + i * sizeof(value), &value, sizeof(value));
  }

  static void add(T* sums, const TreeInput& input, std::size_t begin, std::size_t count, const TreeJob& job) {
    const double factor = job.scaling.prescale;
    if (input.partial) {
      for (std::size_t i = 0; i < count; ++i) sums[i] += at<T>(input.data, begin + i);
    } else if (factor == 1.0) {
      for (std::size_t i = 0; i < count; ++i) sums[i] += static_cast<T>(at<Int>(input.data, begin + i));
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        const double scaled = factor * static_cast<double>(at<Int>(input.data, begin + i));
        sums[i] += truncated<T>(scaled, -kLimit<T>, kLimit<T>);
      }
    }
  }

  static void store(const T* sums, std::byte* out, std::size_t begin, std::size_t count, const TreeJob& job) {
    for (std::size_t i = 0; i < count; ++i) {
      if (job.to_partial) {
        put<T>(out, begin + i, sums[i]);
      } else {
        put<Int>(out, begin + i, finished(sums[i], job.scaling));
      }
    }
  }

  // Without a factor the division is one of integers: it has no limit at 2^53.
  static Int finished(T sum, const Scaling& scaling) {
    constexpr T kLeast = std::numeric_limits<Int>::min(), kMost = std::numeric_limits<Int>::max();
    const T divisor = static_cast<T>(scaling.divisor);
    const bool is_whole = static_cast<double>(divisor) == scaling.divisor && divisor != 0;
    if (scaling.postscale == 1.0 && is_whole) return static_cast<Int>(std::clamp<T>(sum / divisor, kLeast, kMost));
    const double value = scaling.postscale * (static_cast<double>(sum) / scaling.divisor);
    return static_cast<Int>(truncated<T>(value, kLeast, kMost));
  }
};

}  // namespace

TreeRun integer_average(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return IntegerAverage<std::uint8_t, std::int64_t>::run;
    case DType::kInt8:
      return IntegerAverage<std::int8_t, std::int64_t>::run;
    case DType::kUint16:
      return IntegerAverage<std::uint16_t, std::int64_t>::run;
    case DType::kInt16:
      return IntegerAverage<std::int16_t, std::int64_t>::run;
    case DType::kUint32:
      return IntegerAverage<std::uint32_t, std::int64_t>::run;
    case DType::kInt32:
      return IntegerAverage<std::int32_t, std::int64_t>::run;
    case DType::kUint64:
      return IntegerAverage<std::uint64_t, Int128>::run;
    case DType::kInt64:
      return IntegerAverage<std::int64_t, Int128>::run;
    default:
      break;
  }
  HORO_CHECK(!"an integer type");
  return nullptr;
}

}  // namespace horo
