// ShmSums: the sums of what members show each other, in the canonical order: it depends on the contributor ids alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "ring/group.h"
#include "ring/reduce.h"

namespace horo {

// One thread.
class ShmSums {
 public:
  // The tree of the last collective is mostly that of the next one.
  void plan(const std::vector<std::int64_t>& contributors);

  // Members by index.
  bool gives(int member) const { return contributors_[static_cast<std::size_t>(member)] != kAbsent; }
  bool has_givers() const { return !givers_.empty(); }

  // To each of `outs`, which may be among the inputs; input_of(member): where its bytes begin.
  template <class InputOf>
  void sum(const Collective& c, std::span<std::byte* const> outs, std::size_t bytes, InputOf input_of) {
    for (std::size_t i = 0; i < givers_.size(); ++i) inputs_[i].data = input_of(givers_[i]);
    reducer_.run(reduction_of(c), inputs_, outs, bytes / size_of(c.dtype));
  }

  // The same, but the sums are not finished: in the accumulator type, undivided and not scaled.
  template <class InputOf>
  void sum_partial(const Collective& c, std::byte* out, std::size_t bytes, InputOf input_of) {
    for (std::size_t i = 0; i < givers_.size(); ++i) inputs_[i].data = input_of(givers_[i]);
    Reduction reduction = reduction_of(c);
    reduction.to_partial = true;
    reducer_.run(reduction, inputs_, {&out, 1}, bytes / size_of(c.dtype));
  }

  // As sum(), of what lies within kFew bytes, all of which may be read: whole registers take less time than parts of
  // one. `out` gets what begins there at `begin`.
  static constexpr std::size_t kFew = 24;
  template <class InputOf>
  void sum_few(const Collective& c, std::span<std::byte> out, std::size_t begin, InputOf input_of) {
    if (givers_.empty()) return;
    for (std::size_t i = 0; i < givers_.size(); ++i) {
      std::memcpy(few_[i].data(), input_of(givers_[i]), kFew);
      inputs_[i].data = few_[i].data();
    }
    std::byte* const sum = few_[0].data();
    reducer_.run(reduction_of(c), inputs_, {&sum, 1}, kRegister / size_of(c.dtype));
    std::copy_n(sum + begin, out.size(), out.data());
  }

 private:
  static Reduction reduction_of(const Collective& c) {
    return {c.dtype, c.op, {c.prescale, c.postscale, c.divisor}, false, nullptr};
  }

  static constexpr std::size_t kRegister = 64;  // bytes; zeros but for kFew
  struct alignas(kRegister) Register : std::array<std::byte, kRegister> {};

  std::vector<std::int64_t> contributors_;  // of the last collective, and what follows from them
  std::vector<int> givers_;
  TreeReducer reducer_;
  std::vector<TreeInput> inputs_;
  std::vector<Register> few_;
};

}  // namespace horo
