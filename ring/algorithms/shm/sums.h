// ShmSums: sums of data that members expose in shared memory, in canonical order: it depends on the contributor ids
// alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "ring/collective.h"
#include "ring/reduce/reduce.h"

namespace horo {

// One thread. Members are named by index.
class ShmSums {
 public:
  // Sets the contributors of the sums that follow, by member. Cheap if they are those of the last call.
  void plan(const std::vector<std::int64_t>& contributors) {
    if (!is_planned(contributors)) make_plan(contributors);
  }

  bool contributes(int member) const { return contributors_[static_cast<std::size_t>(member)] != kAbsent; }
  bool has_contributors() const { return !members_.empty(); }

  // Sums `bytes` of each contributor's data, which begin at input_of(member), and writes the result to each of `outs`.
  // Outputs may be inputs.
  template <class InputOf>
  void sum(const Collective& c, std::span<std::byte* const> outs, std::size_t bytes, InputOf input_of) {
    set_inputs(input_of);
    reducer_.run(reduction_of(c), inputs_, outs, bytes / size_of(c.dtype));
  }

  // The same in two steps. prepare() needs the addresses only and may be called before the inputs hold their data.
  // `outs` must live until sum_prepared() has returned.
  template <class InputOf>
  void prepare(const Collective& c, std::span<std::byte* const> outs, std::size_t count, InputOf input_of) {
    set_inputs(input_of);
    reducer_.prepare(reduction_of(c), inputs_, outs, count);
  }
  void sum_prepared() const { reducer_.run_prepared(); }

  // As sum(), but writes a partial result: in the accumulator type, neither divided nor scaled.
  template <class InputOf>
  void sum_partial(const Collective& c, std::byte* out, std::size_t bytes, InputOf input_of) {
    set_inputs(input_of);
    Reduction reduction = reduction_of(c);
    reduction.to_partial = true;
    reducer_.run(reduction, inputs_, {&out, 1}, bytes / size_of(c.dtype));
  }

 private:
  template <class InputOf>
  void set_inputs(InputOf input_of) {
    for (std::size_t i = 0; i < members_.size(); ++i) inputs_[i].data = input_of(members_[i]);
  }

  // A loop, since a call of memcmp() takes longer than the comparison of a few ids.
  bool is_planned(const std::vector<std::int64_t>& contributors) const {
    std::size_t equal = 0;
    if (contributors.size() != contributors_.size()) return false;
    while (equal < contributors.size() && contributors[equal] == contributors_[equal]) ++equal;
    return equal == contributors.size();
  }
  void make_plan(const std::vector<std::int64_t>& contributors);

  static Reduction reduction_of(const Collective& c) {
    return {c.dtype, c.op, {c.prescale, c.postscale, c.divisor}, false, nullptr};
  }

  std::vector<std::int64_t> contributors_;  // of the last plan; the rest follows from them
  std::vector<int> members_;                // those that contribute
  TreeReducer reducer_;
  std::vector<TreeInput> inputs_;
};

}  // namespace horo
