#include "ring/slices.h"

#include <algorithm>

#include "ring/custom_op.h"
#include "ring/host_algorithms.h"

namespace horo {
namespace {

bool cuts_evenly(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce || kind == CollectiveKind::kBroadcast;
}

}  // namespace

Slices::Slices(const Collective& collective, const Schedule& schedule, std::size_t most_bytes)
    : collective_(collective), kind_(collective.kind), chunks_(schedule.chunks), even_(cuts_evenly(collective.kind)) {
  const std::size_t most_elements = std::max<std::size_t>(1, most_bytes / size_of(collective.dtype));
  if (even_) {
    count_ = pieces_for(collective.counts[0], most_elements * static_cast<std::size_t>(chunks_));
  } else {
    const auto longest = std::max_element(collective.counts.begin(), collective.counts.end());
    count_ = pieces_for(*longest, most_elements);
    const auto n = static_cast<std::size_t>(schedule.size), me = static_cast<std::size_t>(schedule.member);
    kind_ == CollectiveKind::kAllToAll ? place_by_pair(n, me) : place_by_member(me);
  }
  const bool is_whole = collective.custom != nullptr && collective.custom->whole;
  count_ = is_whole ? 1 : std::max<std::size_t>(1, count_);
}

// A buffer for all members has their parts one after the other; a buffer for one member has that one's at its
// beginning.
void Slices::place_by_member(std::size_t me) {
  std::size_t begin = 0;
  for (const std::size_t count : collective_.counts) {
    in_.push_back(begin);
    out_.push_back(begin);
    begin += count;
  }
  const bool gathers = kind_ == CollectiveKind::kAllGather || kind_ == CollectiveKind::kGather;
  (gathers ? in_ : out_)[me] = 0;
}

void Slices::place_by_pair(std::size_t n, std::size_t me) {
  in_.assign(collective_.counts.size(), 0);
  out_.assign(collective_.counts.size(), 0);
  std::size_t in = 0, out = 0;
  for (std::size_t other = 0; other < n; ++other) {
    in_[me * n + other] = in;
    out_[other * n + me] = out;
    in += collective_.counts[me * n + other];
    out += collective_.counts[other * n + me];
  }
}

std::size_t Slices::elements(std::size_t slice, int chunk) const {
  if (!even_) return piece_of({0, collective_.counts[static_cast<std::size_t>(chunk)]}, count_, slice).size;
  return shard_of(piece_of({0, collective_.counts[0]}, count_, slice).size, chunks_, chunk).size;
}

std::size_t Slices::begin(std::size_t slice, int area, int chunk) const {
  if (!even_) {
    const auto at = static_cast<std::size_t>(chunk);
    return (area == Schedule::kIn ? in_ : out_)[at] + piece_of({0, collective_.counts[at]}, count_, slice).begin;
  }
  const Shard whole = piece_of({0, collective_.counts[0]}, count_, slice);
  return whole.begin + shard_of(whole.size, chunks_, chunk).begin;
}

}  // namespace horo
