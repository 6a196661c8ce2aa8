#include "ring/algorithms/slices.h"

#include <algorithm>

#include "horo/base/wire.h"
#include "ring/algorithms/messages.h"
#include "ring/reduce/custom_op.h"
#include "ring/schedule/schedule_parts.h"

namespace horo {
// One byte more than a packet carries costs a second packet and its acknowledgement: on loopback 65,400 bytes take 9.7
// us and 65,536 bytes take 13.5 us.
Cut cut_by_packets(std::size_t segment_bytes) {
  constexpr std::size_t kPacketBytes = 65463;  // that a loopback packet carries over IPv6; over IPv4 it is 65483
  constexpr std::size_t kAround = kFrameBytes + kChecksumBytes, kAlignment = 64;
  const std::size_t packets = (segment_bytes + kAround) / kPacketBytes;
  if (packets == 0) return {segment_bytes, segment_bytes};
  const std::size_t usual = (packets * kPacketBytes - kAround) / kAlignment * kAlignment;
  return {usual, usual + usual / 8};
}

Slices::Slices(const Collective& collective, const Schedule& schedule, Cut cut)
    : collective_(collective), kind_(collective.kind), chunks_(schedule.chunks), even_(cuts_evenly(collective.kind)) {
  const std::size_t each = size_of(collective.dtype), parts = even_ ? static_cast<std::size_t>(chunks_) : 1;
  const std::size_t usual = std::max<std::size_t>(1, cut.usual / each) * parts;
  const std::size_t spare = (cut.most - cut.usual) / each * parts;
  const std::size_t longest = *std::max_element(collective.counts.begin(), collective.counts.end());
  const std::size_t all = even_ ? collective.counts[0] : longest;
  const bool is_whole = collective.custom != nullptr && collective.custom->whole;
  count_ = is_whole ? 1 : std::max<std::size_t>(1, pieces_for(all - std::min(all, spare), usual));
  if (all > count_ * usual) usual_ = usual;
  if (even_) return;
  const auto n = static_cast<std::size_t>(schedule.size), me = static_cast<std::size_t>(schedule.member);
  kind_ == CollectiveKind::kAllToAll ? place_by_pair(n, me) : place_by_member(me);
}

// A buffer of all members holds their parts one after the other. A buffer of one member's part begins with that part.
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

Shard Slices::piece(std::size_t elements, std::size_t slice) const {
  if (usual_ == 0) return piece_of({0, elements}, count_, slice);
  const std::size_t begin = std::min(elements, slice * usual_);
  return {begin, slice + 1 == count_ ? elements - begin : std::min(usual_, elements - begin)};
}

std::size_t Slices::elements(std::size_t slice, int chunk) const {
  if (!even_) return piece(collective_.counts[static_cast<std::size_t>(chunk)], slice).size;
  return shard_of(whole(slice).size, chunks_, chunk).size;
}

std::size_t Slices::begin(std::size_t slice, int area, int chunk) const {
  if (!even_) {
    const auto at = static_cast<std::size_t>(chunk);
    return (area == Schedule::kIn ? in_ : out_)[at] + piece(collective_.counts[at], slice).begin;
  }
  const Shard all = whole(slice);
  return all.begin + shard_of(all.size, chunks_, chunk).begin;
}

}  // namespace horo
