// Runs the canonical tree on pointers. An input that is only read stays in its buffer. An input is copied if it becomes
// an accumulator, or if it is not aligned to its type. A tree makes as many copies as it has joins of two leaves.

#include "ring/reduce/custom_op.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <vector>

#include "horo/base/check.h"
#include "horo/base/say.h"

namespace horo {
namespace {

constexpr std::size_t kBlockBytes = 64 << 10;  // of an element-wise operation; fits into the second-level cache

class CustomTree {
 public:
  CustomTree(const Reduction& reduction, std::span<const TreeStep> tree, std::span<const TreeInput> inputs)
      : op_(*reduction.custom),
        dtype_(reduction.dtype),
        element_bytes_(size_of(reduction.dtype)),
        tree_(tree),
        inputs_(inputs) {}

  void run(std::byte* out, std::size_t begin, std::size_t count) {
    bytes_ = count * element_bytes_;
    used_ = 0;
    for (const TreeStep& step : tree_) {
      if (step.input == TreeStep::kJoin) {
        join(count);
      } else {
        push(inputs_[static_cast<std::size_t>(step.input)].data + begin * element_bytes_);
      }
    }
    HORO_CHECK(used_ == 1);
    std::memmove(out + begin * element_bytes_, levels_[0].value, bytes_);
  }

 private:
  // A level of the stack. Its memory is reused for later blocks.
  struct Level {
    const std::byte* value = nullptr;
    std::unique_ptr<std::byte[]> memory;
    std::size_t memory_bytes = 0;
    bool is_own() const { return value == memory.get(); }
  };

  void push(const std::byte* value) {
    if (levels_.size() <= used_) levels_.emplace_back();
    levels_[used_++].value = value;
  }

  void join(std::size_t count) {
    Level& left = levels_[used_ - 2];
    Level& right = levels_[used_ - 1];
    if (!left.is_own()) copy(left);
    if (reinterpret_cast<std::uintptr_t>(right.value) % element_bytes_ != 0) copy(right);
    --used_;
    combine(left.memory.get(), right.value, count);
  }

  // Copies the value into memory of the level, which new aligns to any element type.
  void copy(Level& level) const {
    if (level.memory_bytes < bytes_) {
      level.memory.reset(new std::byte[bytes_]);
      level.memory_bytes = bytes_;
    }
    std::memcpy(level.memory.get(), level.value, bytes_);
    level.value = level.memory.get();
  }

  void combine(std::byte* accumulator, const std::byte* value, std::size_t count) const {
    int result = 0;
    try {
      result = op_.combine(accumulator, value, count, dtype_);
    } catch (const std::exception& error) {
      throw std::runtime_error(say("operation '", op_.name, "': ", error.what()));
    } catch (...) {
      throw std::runtime_error(say("operation '", op_.name, "' threw something that is no std::exception"));
    }
    if (result != 0) {
      throw std::runtime_error(say("operation '", op_.name, "' returned ", result, " for ", count, " elements of ",
                                   name_of(dtype_), ", expected 0"));
    }
  }

  const CustomOp& op_;
  const DType dtype_;
  const std::size_t element_bytes_;
  const std::span<const TreeStep> tree_;
  const std::span<const TreeInput> inputs_;
  std::size_t bytes_ = 0;  // of a block
  std::vector<Level> levels_;
  std::size_t used_ = 0;
};

}  // namespace

void check(const CustomOp& op) {
  if (op.name.empty()) throw std::invalid_argument("a custom operation needs a name");
  if (!op.combine) throw std::invalid_argument(say("operation '", op.name, "': combine is null"));
}

void reduce_custom(const Reduction& reduction, std::span<const TreeStep> tree, std::span<const TreeInput> inputs,
                   std::byte* out, std::size_t count) {
  HORO_CHECK(reduction.custom != nullptr);
  CustomTree custom(reduction, tree, inputs);
  const std::size_t block =
      reduction.custom->whole ? count : std::max<std::size_t>(1, kBlockBytes / size_of(reduction.dtype));
  for (std::size_t begin = 0; begin < count; begin += block) custom.run(out, begin, std::min(block, count - begin));
}

}  // namespace horo
