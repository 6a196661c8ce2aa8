// Where the chunks of a schedule lie in the caller's buffers, slice by slice.
#pragma once

#include <cstddef>
#include <vector>

#include "horo/base/shard.h"
#include "ring/group.h"
#include "ring/schedule.h"

namespace horo {

// all_reduce, reduce and broadcast cut each slice into chunks anew, so a run of chunks is one piece of memory. The
// other kinds have parts of given lengths, of which a slice holds an equal share each; a run of them is one piece of
// memory if there is one slice only.
class Slices {
 public:
  // `most_bytes`: of one chunk in a slice.
  Slices(const Collective& collective, const Schedule& schedule, std::size_t most_bytes);

  std::size_t count() const { return count_; }
  bool runs_are_contiguous() const { return even_ || count_ == 1; }
  // Elements of a chunk in a slice; the longest of all slices.
  std::size_t elements(std::size_t slice, int chunk) const;
  std::size_t most_elements(int chunk) const { return elements(0, chunk); }
  // Where it begins in the input or output (area), in elements.
  std::size_t begin(std::size_t slice, int area, int chunk) const;

 private:
  void place_by_member(std::size_t me);
  void place_by_pair(std::size_t n, std::size_t me);

  const Collective& collective_;
  const CollectiveKind kind_;
  const int chunks_;
  const bool even_;
  std::vector<std::size_t> in_, out_;  // by chunk: begin in the caller's buffers, in elements
  std::size_t count_ = 1;
};

}  // namespace horo
