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
#include "ring/reduce/reduce.h"

namespace horo {

// One thread.
class ShmSums {
 public:
  // The tree of the last collective is mostly that of the next one.
  void plan(const std::vector<std::int64_t>& contributors) {
    if (!is_planned(contributors)) make_plan(contributors);
  }

  // Members by index.
  bool gives(int member) const { return contributors_[static_cast<std::size_t>(member)] != kAbsent; }
  bool has_givers() const { return !givers_.empty(); }

  // To each of `outs`, which may be among the inputs; input_of(member): where its bytes begin.
  template <class InputOf>
  void sum(const Collective& c, std::span<std::byte* const> outs, std::size_t bytes, InputOf input_of) {
    for (std::size_t i = 0; i < givers_.size(); ++i) inputs_[i].data = input_of(givers_[i]);
    reducer_.run(reduction_of(c), inputs_, outs, bytes / size_of(c.dtype));
  }

  // The same in two steps: what can be done before the others' bytes are there, and the rest. `outs` lives until then.
  template <class InputOf>
  void prepare(const Collective& c, std::span<std::byte* const> outs, std::size_t count, InputOf input_of) {
    for (std::size_t i = 0; i < givers_.size(); ++i) inputs_[i].data = input_of(givers_[i]);
    reducer_.prepare(reduction_of(c), inputs_, outs, count);
  }
  void sum_prepared() const { reducer_.run_prepared(); }

  // As sum(), but the sums are not finished: in the accumulator type, undivided and not scaled.
  template <class InputOf>
  void sum_partial(const Collective& c, std::byte* out, std::size_t bytes, InputOf input_of) {
    for (std::size_t i = 0; i < givers_.size(); ++i) inputs_[i].data = input_of(givers_[i]);
    Reduction reduction = reduction_of(c);
    reduction.to_partial = true;
    reducer_.run(reduction, inputs_, {&out, 1}, bytes / size_of(c.dtype));
  }

 private:
  // A call of memcmp() would take longer than the few ids that there are.
  bool is_planned(const std::vector<std::int64_t>& contributors) const {
    std::size_t alike = 0;
    if (contributors.size() != contributors_.size()) return false;
    while (alike < contributors.size() && contributors[alike] == contributors_[alike]) ++alike;
    return alike == contributors.size();
  }
  void make_plan(const std::vector<std::int64_t>& contributors);

  static Reduction reduction_of(const Collective& c) {
    return {c.dtype, c.op, {c.prescale, c.postscale, c.divisor}, false, nullptr};
  }

  std::vector<std::int64_t> contributors_;  // of the last collective, and what follows from them
  std::vector<int> givers_;
  TreeReducer reducer_;
  std::vector<TreeInput> inputs_;
};

}  // namespace horo
