// ShmMoves: what a collective moves among members that see each other's memory. Each shows bytes of its input, and
// each takes a part of what each of them shows. Where the kind reduces, the parts are summed instead of laid in a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "ring/group.h"

namespace horo {

// Everything in bytes.
class ShmMoves {
 public:
  // Any kind but all_reduce and send_recv, checked. Takes next to no time where it is like the last one.
  void plan(const Collective& collective, int size, int index);

  struct Part {
    std::size_t from = 0;  // where it begins in its giver's input
    std::size_t to = 0;    // and in its taker's output
    std::size_t bytes = 0;
  };
  // What this member takes of what that one shows, and the other way round.
  const Part& from(int member) const { return from_[static_cast<std::size_t>(member)]; }
  const Part& to(int member) const { return to_[static_cast<std::size_t>(member)]; }
  std::size_t shown(int member) const { return shown_[static_cast<std::size_t>(member)]; }
  std::size_t result() const { return result_; }  // of this member's output

  // Equal on all members: what the one that shows most shows, the longest part that one takes of another, whether all
  // takers take the same, and a number for all of it (ShmSync::Arrival).
  std::size_t most_shown() const { return most_shown_; }
  std::size_t longest() const { return longest_; }
  bool is_same_for_all() const { return is_same_for_all_; }
  std::uint64_t shape() const { return shape_; }

  // The one that gives to, or takes from, all others, who have nothing to do with each other; kNobody.
  static constexpr int kNobody = -1;
  int giver() const { return giver_; }
  int taker() const { return taker_; }
  int root() const { return giver_ != kNobody ? giver_ : taker_; }
  // Whether a member waits for what others show.
  bool takes(int member) const { return taker_ == kNobody ? member != giver_ : member == taker_; }

 private:
  Part part(int giver, int taker) const;
  std::size_t shown_by(int member) const;
  std::size_t bytes_of(std::size_t first, std::size_t counts) const { return begins_[first + counts] - begins_[first]; }
  bool contributes(int member) const;
  void sum_counts();
  void measure(int size);

  std::tuple<CollectiveKind, DType, ReduceOp, int, std::vector<std::size_t>, std::vector<std::int64_t>> asked_;
  const Collective* c_ = nullptr;  // while it is planned
  std::size_t size_ = 0;
  std::vector<std::size_t> begins_;  // by count: the bytes of all before it; and of all
  std::vector<Part> from_, to_;
  std::vector<std::size_t> shown_;
  std::size_t result_ = 0, most_shown_ = 0, longest_ = 0;
  bool is_same_for_all_ = false;
  int giver_ = kNobody, taker_ = kNobody;
  std::uint64_t shape_ = 0;
};

// kind in the first byte; `rest` is cut.
inline std::uint64_t shape_of(CollectiveKind kind, DType dtype, ReduceOp op, std::uint64_t rest) {
  const auto byte = [](auto value, int at) { return static_cast<std::uint64_t>(value) << (56 - 8 * at); };
  return byte(kind, 0) | byte(dtype, 1) | byte(op, 2) | (rest >> 24);
}

}  // namespace horo
