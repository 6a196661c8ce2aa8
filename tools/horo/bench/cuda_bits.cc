#include "tools/horo/bench/cuda_bits.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>

#include "horo/base/say.h"
#include "ring/cuda/device_memory.h"
#include "ring/reduce/reduce.h"

namespace horo::tools {
namespace {

constexpr std::size_t kCudaGuard = 64;  // bytes behind a result that stay as they are
constexpr std::size_t kWidest = 16;

struct CudaVariant {
  Scaling scaling;
  bool is_in_place;
  std::size_t shift;  // what offsets are multiples of
};
constexpr CudaVariant kCudaVariants[] = {
    {{}, false, 16},        {{}, true, 16},           {{}, false, 1},           {{}, true, 2},
    {{1, 1, 3}, false, 16}, {{0.37, 1, 7}, true, 16}, {{1, -2.5, 1}, false, 4}, {{1e20, 0, 1}, false, 16},
};

struct CudaShape {
  DType dtype;
  ReduceOp op;
  std::size_t inputs, count;
  CudaVariant variant;
};

// Random bytes, read at many offsets by the processor and the device. In the second half every fourth byte is that of a
// float between 0.5 and 2, so that additions round.
std::vector<std::byte> cuda_pool(std::size_t bytes) {
  std::mt19937 random(11);
  std::vector<std::byte> pool(bytes);
  for (auto& byte : pool) byte = static_cast<std::byte>(random());
  for (std::size_t at = bytes / 2 + 3; at < bytes; at += 4)
    pool[at] = random() % 2 == 0 ? std::byte{0x3f} : std::byte{0xbf};
  return pool;
}

class CudaComparison {
 public:
  CudaComparison(const CudaDevice& device, std::size_t most_elements)
      : device_(device),
        stream_(device),
        room_(most_elements * kWidest + 2 * kCudaGuard),
        pool_(cuda_pool(4 * room_)),
        out_(room_),
        pool_memory_(device, "the inputs of horo bench"),
        out_memory_(device, "the results of horo bench") {
    pool_memory_.at_least(pool_.size());
    out_memory_.at_least(room_);
    stream_.copy_to_device(pool_memory_.data(), pool_.data(), pool_.size());
    stream_.copy_to_device(out_memory_.data(), out_.data(), room_);
    stream_.finish();
  }

  bool is_right(const CudaShape& shape) {
    const std::size_t bytes = shape.count * size_of(shape.dtype);
    std::vector<TreeInput> host;
    std::vector<const void*> device;
    for (std::size_t i = 0; i < shape.inputs; ++i) {
      const std::size_t at = random_() % ((pool_.size() - bytes) / shape.variant.shift) * shape.variant.shift;
      host.push_back({pool_.data() + at});
      device.push_back(pool_memory_.data() + at);
    }
    const std::size_t at = random_() % (kCudaGuard / shape.variant.shift) * shape.variant.shift;
    if (shape.variant.is_in_place) {
      std::memcpy(out_.data() + at, host.back().data, bytes);
      put(out_memory_.data() + at, device.back(), bytes);
      host.back().data = out_.data() + at;
      device.back() = out_memory_.data() + at;
    }
    return has_right_bits(shape, host, device, at);
  }

 private:
  void put(void* to, const void* from, std::size_t bytes) {
    const CopyRow row{from, to, bytes};
    device_.check(device_.api().copy_rows(&row, 1, stream_.handle()), "copying rows");
  }

  bool has_right_bits(const CudaShape& shape, const std::vector<TreeInput>& host,
                      const std::vector<const void*>& device, std::size_t at) {
    const std::vector<TreeStep> tree = canonical_tree(random_ids(shape.inputs));
    const Scaling& scaling = shape.variant.scaling;
    reduce_tree({shape.dtype, shape.op, scaling}, tree, host, out_.data() + at, shape.count);
    DeviceReduction reduction;
    reduction.dtype = shape.dtype, reduction.op = shape.op;
    reduction.inputs = device.data(), reduction.input_count = device.size();
    reduction.tree = tree.data(), reduction.steps = tree.size();
    reduction.out = out_memory_.data() + at, reduction.count = shape.count;
    reduction.prescale = scaling.prescale, reduction.postscale = scaling.postscale;
    reduction.divisor = scaling.divisor;
    device_.check(device_.api().reduce(&reduction, stream_.handle()), "reducing");
    const std::size_t end = at + shape.count * size_of(shape.dtype) + kCudaGuard;
    std::vector<std::byte> found(end);
    stream_.copy_to_host(found.data(), out_memory_.data(), end);
    stream_.finish();
    const bool is_right = std::memcmp(found.data(), out_.data(), end) == 0;
    if (!is_right) std::memcpy(out_.data(), found.data(), end);  // what comes next is compared with what is there
    return is_right;
  }

  // Every second time 0, 1, 2 ..., else with gaps.
  std::vector<std::int64_t> random_ids(std::size_t count) {
    const std::uint64_t gap = 1 + random_() % 2;
    std::vector<std::int64_t> ids;
    for (std::int64_t next = 0; ids.size() < count; ++next) {
      next += static_cast<std::int64_t>(random_() % gap);
      ids.push_back(next);
    }
    return ids;
  }

  const CudaDevice& device_;
  DeviceStream stream_;
  const std::size_t room_;
  std::mt19937 random_{12};
  std::vector<std::byte> pool_, out_;
  DeviceScratch pool_memory_, out_memory_;
};

std::vector<CudaShape> cuda_shapes(std::size_t most_elements) {
  std::vector<CudaShape> all;
  for (int type = 0; const auto dtype = dtype_from(type); ++type) {
    for (int number = 0; const auto op = reduce_op_from(number); ++number) {
      if (!has_kernel(*dtype, *op)) continue;
      for (const std::size_t inputs : {1, 2, 3, 4, 5, 6, 7, 8, 9, 32}) {
        for (const std::size_t count : {std::size_t{1}, most_elements / 30 + 1, most_elements}) {
          all.push_back({*dtype, *op, inputs, count, kCudaVariants[all.size() % std::size(kCudaVariants)]});
        }
      }
    }
  }
  return all;
}

}  // namespace

CudaBits compare_cuda(const CudaDevice& device, std::size_t most_elements) {
  CudaComparison comparison(device, most_elements);
  CudaBits bits;
  for (const CudaShape& shape : cuda_shapes(most_elements)) {
    ++bits.checked;
    if (comparison.is_right(shape)) continue;
    bits.wrong.push_back(say(name_of(shape.dtype), " ", name_of(shape.op), " of ", shape.inputs, " inputs of ",
                             shape.count, " elements, variant ", bits.checked % std::size(kCudaVariants)));
  }
  return bits;
}

}  // namespace horo::tools
