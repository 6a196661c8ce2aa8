// Where the chunks of a schedule lie in the caller's buffers, slice by slice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "horo/base/shard.h"
#include "ring/group.h"
#include "ring/schedule/schedule.h"

namespace horo {

// How long a slice's part of a chunk is, in bytes: `usual`, but for the last one's, which takes a rest of up to `most`.
struct Cut {
  std::size_t usual;
  std::size_t most;
};
// Parts whose messages fill packets of the loopback interface to the end: a rest costs the kernel as much as a packet.
Cut cut_by_packets(std::size_t segment_bytes);

// all_reduce, reduce and broadcast cut each slice into chunks anew, so a run of chunks is one piece of memory. The
// other kinds have parts of given lengths, of which a slice holds an equal share each; a run of them is one piece of
// memory if there is one slice only.
class Slices {
 public:
  Slices(const Collective& collective, const Schedule& schedule, Cut cut);

  std::size_t count() const { return count_; }
  bool runs_are_contiguous() const { return even_ || count_ == 1; }
  // Elements of a chunk in a slice; the longest of all slices.
  std::size_t elements(std::size_t slice, int chunk) const;
  std::size_t most_elements(int chunk) const { return std::max(elements(0, chunk), elements(count_ - 1, chunk)); }
  // Where it begins in the input or output (area), in elements.
  std::size_t begin(std::size_t slice, int area, int chunk) const;
  // What all chunks have in a slice, of what is cut into chunks anew.
  Shard whole(std::size_t slice) const { return piece(collective_.counts[0], slice); }

 private:
  Shard piece(std::size_t elements, std::size_t slice) const;
  void place_by_member(std::size_t me);
  void place_by_pair(std::size_t n, std::size_t me);

  const Collective& collective_;
  const CollectiveKind kind_;
  const int chunks_;
  const bool even_;
  std::vector<std::size_t> in_, out_;  // by chunk: begin in the caller's buffers, in elements
  std::size_t count_ = 1;
  std::size_t usual_ = 0;  // elements of a slice, or of one chunk in it (not even_); 0: all are equal
};

}  // namespace horo
