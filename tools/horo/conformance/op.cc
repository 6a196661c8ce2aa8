// Each trial runs the operation on new memory between guard bytes and compares bytes. Different guard bytes reveal an
// operation that reads outside of its elements.

#include "tools/horo/conformance/op.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <random>
#include <stdexcept>

#include "horo/base/say.h"
#include "tools/horo/conformance/guarded.h"

namespace horo::tools {
namespace {

constexpr std::size_t kContributors = 7;

// The elements as numbers; a complex number is two.
std::vector<double> numbers_in(const Bytes& bytes, DType dtype) {
  std::vector<double> numbers;
  const auto add = [&](auto example, const Bytes& from) {
    for (std::size_t at = 0; at < from.size(); at += sizeof(example)) {
      std::memcpy(&example, from.data() + at, sizeof(example));
      numbers.push_back(static_cast<double>(example));
    }
  };
  if (dtype == DType::kFloat64 || dtype == DType::kComplex128) {
    add(double{}, bytes);
  } else if (dtype == DType::kFloat32 || dtype == DType::kComplex64) {
    add(float{}, bytes);
  } else {
    const std::size_t count = bytes.size() / size_of(dtype);
    Bytes wide(count * sizeof(float));
    const TreeInput input{bytes.data()};
    const TreeStep leaf{0};
    reduce_tree({dtype, ReduceOp::kSum, {}, true}, {&leaf, 1}, {&input, 1}, wide.data(), count);
    add(float{}, wide);
  }
  return numbers;
}

bool is_exact(DType dtype) {
  return is_integer(dtype) || dtype == DType::kBool;
}

double unit_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kComplex128:
      return std::numeric_limits<double>::epsilon();
    case DType::kFloat16:
      return 0x1p-10;
    case DType::kBFloat16:
      return 0x1p-7;
    case DType::kFloat8E4m3:
      return 0x1p-3;
    case DType::kFloat8E5m2:
      return 0x1p-2;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

Bytes small_numbers(std::size_t count, DType dtype, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count * size_of(dtype));
  if (is_exact(dtype)) {
    for (auto at = bytes.begin(); at != bytes.end(); at += static_cast<std::ptrdiff_t>(size_of(dtype))) {
      *at = static_cast<std::byte>(random() % (dtype == DType::kBool ? 2 : 5));
    }
    return bytes;
  }
  const DType wide_type = accumulator_of(dtype);
  const bool is_double = wide_type == DType::kFloat64 || wide_type == DType::kComplex128;
  Bytes wide(count * size_of(wide_type));
  for (std::size_t at = 0; at < wide.size(); at += is_double ? 8 : 4) {
    const double number = static_cast<double>(random() % 8193) / 1024 - 4;
    const auto narrow = static_cast<float>(number);
    is_double ? std::memcpy(wide.data() + at, &number, 8) : std::memcpy(wide.data() + at, &narrow, 4);
  }
  const TreeInput input{wide.data(), true};
  const TreeStep leaf{0};
  reduce_tree({dtype, ReduceOp::kSum, {}}, {&leaf, 1}, {&input, 1}, bytes.data(), count);
  return bytes;
}

// One type and count.
class Trial {
 public:
  Trial(const CustomOp& op, const OpTrial& options, DType dtype, std::uint64_t count)
      : op_(op), options_(options), dtype_(dtype), count_(count), each_(size_of(dtype)) {}

  void run() const {
    const Bytes a = input(1), b = input(2), c = input(3);
    nothing(a);
    const Bytes ab = combined(a, b);
    repeats(a, b, c, ab);
    expect(ab == combined(a, b, 0, std::byte{0x3c}), "its result depends on memory beside its elements");
    if (!op_.whole) {
      pieces(a, b, ab);
      agree(combined(ab, c), combined(a, combined(b, c)), {a, b, c},
            "it is not associative: (a o b) o c is not a o (b o c)");
    }
    tree();
  }

 private:
  template <class... Parts>
  void expect(bool holds, const Parts&... otherwise) const {
    if (holds) return;
    throw std::runtime_error(
        say("operation '", op_.name, "', ", count_, " elements of ", name_of(dtype_), ": ", otherwise...));
  }

  Bytes input(std::uint64_t seed) const {
    if (!options_.fill) return small_numbers(count_, dtype_, seed);
    Bytes bytes(count_ * each_);
    options_.fill(bytes.data(), count_, dtype_, seed);
    return bytes;
  }

  void call(std::byte* accumulator, const std::byte* value, std::uint64_t count) const {
    int result = 0;
    std::string thrown;
    try {
      result = op_.combine(accumulator, value, count, dtype_);
    } catch (const std::exception& error) {
      thrown = say("it threw \"", error.what(), "\"");
    }
    expect(thrown.empty(), thrown);
    expect(result == 0, "it returned ", result, ", expected 0");
  }

  Bytes combined(const Bytes& a, const Bytes& b, std::size_t shift = 0, std::byte guard = std::byte{0xa5}) const {
    GuardedMemory accumulator(a, shift * each_, guard), value(b, shift * each_, guard);
    call(accumulator.data(), value.data(), a.size() / each_);
    expect(accumulator.is_intact(), "it writes outside of the accumulator");
    expect(value.is_intact() && value.contents() == b, "it writes to the value, or beside it");
    return accumulator.contents();
  }

  void nothing(const Bytes& a) const {
    GuardedMemory accumulator(a, 0, std::byte{0xa5}), value(a, 0, std::byte{0xa5});
    call(accumulator.data(), value.data(), 0);
    expect(accumulator.is_intact() && accumulator.contents() == a,
           "it writes although there are 0 elements to combine");
  }

  void repeats(const Bytes& a, const Bytes& b, const Bytes& c, const Bytes& ab) const {
    expect(ab == combined(a, b), "the same inputs give other bits if they are combined again");
    combined(c, a);
    expect(ab == combined(a, b), "its result depends on elements that it combined before");
    expect(ab == combined(a, b, 1),
           "its result depends on the address: elements have the alignment of their type only");
  }

  void pieces(const Bytes& a, const Bytes& b, const Bytes& ab) const {
    Bytes joined;
    for (std::uint64_t begin = 0, length = 1; begin < count_; begin += length, length = 2 * length + 1) {
      const std::uint64_t end = std::min(count_, begin + length);
      const auto piece = [&](const Bytes& of) {
        return Bytes(of.begin() + static_cast<std::ptrdiff_t>(begin * each_),
                     of.begin() + static_cast<std::ptrdiff_t>(end * each_));
      };
      const Bytes part = combined(piece(a), piece(b));
      joined.insert(joined.end(), part.begin(), part.end());
    }
    expect(joined == ab, "pieces and the whole give different results: it needs whole tensors and must declare it");
  }

  void agree(const Bytes& left, const Bytes& right, const std::vector<Bytes>& inputs, const char* otherwise) const {
    if (is_exact(dtype_)) return expect(left == right, otherwise);
    double largest = 0;
    for (const Bytes& bytes : inputs) {
      for (const double number : numbers_in(bytes, dtype_)) largest = std::max(largest, std::fabs(number));
    }
    const std::vector<double> l = numbers_in(left, dtype_), r = numbers_in(right, dtype_);
    const double tolerance = options_.tolerance > 0 ? options_.tolerance : 16 * unit_of(dtype_);
    for (std::size_t i = 0; i < l.size(); ++i) {
      const double most = std::max({largest, std::fabs(l[i]), std::fabs(r[i])});
      const bool both_nan = l[i] != l[i] && r[i] != r[i];
      expect(both_nan || l[i] == r[i] || std::fabs(l[i] - r[i]) <= tolerance * most, otherwise, ", ", l[i], " against ",
             r[i]);
    }
  }

  // Ids with a gap: their tree differs from that of 0 to 6.
  void tree() const {
    std::vector<std::int64_t> ids;
    std::vector<Bytes> inputs;
    std::vector<TreeInput> leaves;
    for (std::size_t i = 0; i < kContributors; ++i) {
      ids.push_back(static_cast<std::int64_t>(i < 3 ? i : i + 2));
      inputs.push_back(input(10 + i));
    }
    for (const Bytes& bytes : inputs) leaves.push_back({bytes.data()});
    const std::vector<TreeStep> steps = canonical_tree(ids);
    std::vector<Bytes> stack;
    for (const TreeStep& step : steps) {
      if (step.input != TreeStep::kJoin) {
        stack.push_back(inputs[static_cast<std::size_t>(step.input)]);
        continue;
      }
      const Bytes right = stack.back();
      stack.pop_back();
      stack.back() = combined(stack.back(), right);
    }
    Bytes out(count_ * each_);
    Reduction reduction{dtype_, ReduceOp::kCustom, {}};
    reduction.custom = &op_;
    reduce_tree(reduction, steps, leaves, out.data(), count_);
    expect(out == stack.front(), "a sum over ", kContributors,
           " contributors has other bits than its calls one by one");
  }

  const CustomOp& op_;
  const OpTrial& options_;
  const DType dtype_;
  const std::uint64_t count_;
  const std::size_t each_;
};

}  // namespace

std::vector<std::string> faults_of(const CustomOp& op, const OpTrial& trial) {
  std::vector<std::string> faults;
  for (const DType dtype : trial.dtypes) {
    for (const std::uint64_t count : trial.counts) {
      try {
        check(op);
        Trial(op, trial, dtype, count).run();
      } catch (const std::exception& fault) {
        faults.emplace_back(fault.what());
      }
    }
  }
  return faults;
}

}  // namespace horo::tools
