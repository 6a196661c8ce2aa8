// The input and output of an all_reduce as one address space: one buffer each, or Collective::pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "horo/base/shard.h"
#include "ring/group.h"

namespace horo {

// One thread.
class Pieces {
 public:
  // Reads the lengths of the pieces. Must precede visit() of a collective with pieces.
  void plan(const Collective& c) {
    begins_.clear();
    for (std::size_t begin = 0; const Piece& piece : c.pieces) {
      begins_.push_back(begin);
      begin += piece.bytes;
    }
  }

  // Calls visit(in, out, bytes, offset in the range) for each contiguous part of `range`, which is in bytes.
  template <class Visit>
  void visit(const Collective& c, Shard range, Visit visit) const {
    if (c.pieces.empty()) return visit(c.in.data + range.begin, c.out.data + range.begin, range.size, std::size_t{0});
    const auto next = std::upper_bound(begins_.begin(), begins_.end(), range.begin);
    auto at = static_cast<std::size_t>(next - begins_.begin()) - 1;
    for (std::size_t done = 0; done < range.size; ++at) {
      const std::size_t skipped = range.begin + done - begins_[at];
      const std::size_t bytes = std::min(c.pieces[at].bytes - skipped, range.size - done);
      if (bytes > 0) visit(c.pieces[at].in + skipped, c.pieces[at].out + skipped, bytes, done);
      done += bytes;
    }
  }

 private:
  std::vector<std::size_t> begins_;
};

}  // namespace horo
