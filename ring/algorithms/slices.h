// The places of a schedule's chunks in the caller's buffers, slice by slice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "horo/base/shard.h"
#include "ring/group.h"
#include "ring/schedule/schedule.h"

namespace horo {

// The length of a slice's part of a chunk, in bytes. The last slice may be longer, so that no short slice follows it.
struct Cut {
  std::size_t usual;
  std::size_t most;  // of the last slice
};
// Parts whose messages fill the packets of the loopback interface, because a partly filled packet costs the kernel as
// much as a full one. At most segment_bytes and an eighth of it.
Cut cut_by_packets(std::size_t segment_bytes);

// all_reduce, reduce and broadcast cut the tensor into slices and each slice into chunks, so a run of chunks is
// contiguous in memory. In the other kinds a chunk is a member's part, and a slice holds a share of every part; a run
// of chunks is contiguous only if there is one slice.
class Slices {
 public:
  Slices(const Collective& collective, const Schedule& schedule, Cut cut);

  std::size_t count() const { return count_; }
  bool runs_are_contiguous() const { return even_ || count_ == 1; }
  // Elements of the chunk in the slice, and the maximum over all slices.
  std::size_t elements(std::size_t slice, int chunk) const;
  std::size_t most_elements(int chunk) const { return std::max(elements(0, chunk), elements(count_ - 1, chunk)); }
  // The first element of the chunk's part of the slice, in the input or output (area).
  std::size_t begin(std::size_t slice, int area, int chunk) const;
  // The slice as elements of the tensor, for kinds that are cut evenly.
  Shard whole(std::size_t slice) const { return piece(collective_.counts[0], slice); }

 private:
  Shard piece(std::size_t elements, std::size_t slice) const;
  void place_by_member(std::size_t me);
  void place_by_pair(std::size_t n, std::size_t me);

  const Collective& collective_;
  const CollectiveKind kind_;
  const int chunks_;
  const bool even_;
  std::vector<std::size_t> in_, out_;  // by chunk: its first element in the caller's buffers
  std::size_t count_ = 1;
  std::size_t usual_ = 0;  // elements of a slice (even_) or of a chunk's part of it; 0: all slices have equal shares
};

}  // namespace horo
