// ShmMoves: the data that a collective moves among members that map each other's arenas. Each member exposes a range of
// its input, and each reads a range of what every member exposes. If the kind reduces, the ranges are summed; else they
// are laid one behind the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "ring/collective.h"

namespace horo {

// A range of exposed data that one member reads from another, in bytes.
struct MoveRange {
  std::size_t in_begin = 0;   // in the input of the member that exposes it
  std::size_t out_begin = 0;  // in the output of the member that reads it
  std::size_t bytes = 0;
};

// All lengths are in bytes. One thread.
class ShmMoves {
 public:
  // Any kind but all_reduce and send_recv, checked before. Cheap if the collective is like the last one.
  void plan(const Collective& collective, int size, int index);

  // The range that this member reads from `member`, and the range that `member` reads from this member.
  const MoveRange& read_from(int member) const { return read_from_[static_cast<std::size_t>(member)]; }
  const MoveRange& read_by(int member) const { return read_by_[static_cast<std::size_t>(member)]; }
  std::size_t exposed(int member) const { return exposed_[static_cast<std::size_t>(member)]; }
  std::size_t result() const { return result_; }  // the length of this member's output

  // Equal on all members: the most that a member exposes, the longest range that one member reads of another, whether
  // all readers of a member read the same range, and a shape for the SyncSignature, which hashes the whole plan.
  std::size_t most_exposed() const { return most_exposed_; }
  std::size_t longest() const { return longest_; }
  bool is_same_for_all() const { return is_same_for_all_; }
  std::uint64_t shape() const { return shape_; }

  // The only member that exposes data, or the only one that reads them; kNone. Then the others exchange nothing among
  // themselves.
  static constexpr int kNone = -1;
  int only_source() const { return source_; }
  int only_reader() const { return reader_; }
  int root() const { return source_ != kNone ? source_ : reader_; }
  // Whether a member reads data that other members expose.
  bool reads(int member) const { return reader_ == kNone ? member != source_ : member == reader_; }

 private:
  MoveRange range_between(int source, int reader) const;
  std::size_t exposed_by(int member) const;
  std::size_t bytes_of(std::size_t first, std::size_t counts) const { return begins_[first + counts] - begins_[first]; }
  bool contributes(int member) const;
  void sum_counts();
  void measure(int size);

  std::tuple<CollectiveKind, DType, ReduceOp, int, std::vector<std::size_t>, std::vector<std::int64_t>> planned_;
  const Collective* c_ = nullptr;  // during plan()
  std::size_t size_ = 0;
  std::vector<std::size_t> begins_;  // by count: the bytes of all counts before it; and of all
  std::vector<MoveRange> read_from_, read_by_;
  std::vector<std::size_t> exposed_;
  std::size_t result_ = 0, most_exposed_ = 0, longest_ = 0;
  bool is_same_for_all_ = false;
  int source_ = kNone, reader_ = kNone;
  std::uint64_t shape_ = 0;
};

}  // namespace horo
