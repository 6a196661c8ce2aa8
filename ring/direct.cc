// Direct exchange: every member sends each owner its piece of the owner's shard, the owner sums the pieces in canonical
// order and (all_reduce) sends the finished shard to everybody. 2(N-1)/N*S bytes per member, as a ring, but two message
// times instead of 2(N-1), any N, and an order of summation that does not depend on places.
//
// Shards travel in segments, so that one is summed while the next ones are on their way. With a window W and a lag L:
//
//   step j:  wait for the pieces of my segment j and sum them; post the receives for segment j+W in their place; send
//   the
//            result to all (reduce_scatter: an empty credit)
//            wait for the others' results of segment j-L: their scratch is free again, send the pieces of segment j-L+W
//
// At most W segments of each peer lie in scratch. Whoever gets a result knows that its sender has posted the next
// receive, so no message comes early. L < W, so the member that is furthest behind has all that it waits for under way:
// no deadlock. L <= (W-2)/2, so a peer that is as far ahead as it can be (its own waits are for our results) still
// finds our receives.

#include <algorithm>
#include <cstring>

#include "ring/host_algorithms.h"
#include "ring/schedule.h"

namespace horo {
namespace {

constexpr std::size_t kScratchBytes = 16 << 20;
constexpr std::size_t kLeastWindow = 4;
constexpr std::size_t kMostWindow = 16;

class DirectReduction {
 public:
  DirectReduction(const Party& party, const Collective& c);
  void run();

 private:
  using Ops = std::vector<Mail::Op>;

  std::size_t segments_of(int member) const { return segments_[static_cast<std::size_t>(member)]; }
  Shard piece(int owner, std::size_t k) const {
    return piece_of(shards_[static_cast<std::size_t>(owner)], segments_of(owner), k);
  }
  bool adds(int member) const { return !is_absent(c_, member); }
  std::span<std::byte> slot(int member, std::size_t k, std::size_t bytes) const {
    const std::size_t at = k % window_ * shards_.size() + static_cast<std::size_t>(member);
    return scratch_.part(at * slot_bytes_, bytes);
  }
  std::byte* result_of(Shard piece) const;
  void expect_pieces(std::size_t k);
  void open(std::size_t k);
  void sum(std::size_t k);
  void close(std::size_t k);

  const Party& party_;
  const Collective& c_;
  const Mail mail_;
  const int me_;
  const bool gathers_;  // all_reduce: the results go to everybody
  const std::size_t element_bytes_;
  const std::vector<Shard> shards_;
  const std::vector<Step> steps_;
  std::vector<std::size_t> segments_;  // by member
  std::size_t rounds_ = 0;
  std::size_t window_;
  std::size_t lag_;
  std::size_t slot_bytes_ = 0;
  ScratchPool::Piece scratch_;
  bool in_own_place_;  // reduce_scatter whose out overlaps in: sums in place, moves at the end
  const std::vector<TreeStep> tree_;
  std::vector<Ops> pieces_;  // by segment: what has to be here before it can be summed
  std::vector<Ops> rest_;    // by segment: everything else
};

std::size_t window_for(const Party& party) {
  const auto peers = static_cast<std::size_t>(std::max(1, party.size() - 1));
  return std::clamp(kScratchBytes / (party.segment_bytes * peers), kLeastWindow, kMostWindow);
}

std::size_t segment_elements(const Party& party, const Collective& c) {
  return std::max<std::size_t>(1, party.segment_bytes / size_of(c.dtype));
}

// By member, the number of segments of its shard.
std::vector<std::size_t> count_segments(const std::vector<Shard>& shards, std::size_t segment_elements) {
  std::vector<std::size_t> counts;
  for (const Shard& shard : shards) counts.push_back(pieces_for(shard.size, segment_elements));
  return counts;
}

std::size_t longest(const std::vector<Shard>& shards) {
  return std::max_element(shards.begin(), shards.end(), [](Shard a, Shard b) { return a.size < b.size; })->size;
}

bool overlaps(const Buffer& a, const Buffer& b) {
  const std::less<const std::byte*> before;
  return a.bytes > 0 && b.bytes > 0 && before(a.data, b.data + b.bytes) && before(b.data, a.data + a.bytes);
}

DirectReduction::DirectReduction(const Party& party, const Collective& c)
    : party_(party),
      c_(c),
      mail_(party, c),
      me_(party.index),
      gathers_(c.kind == CollectiveKind::kAllReduce),
      element_bytes_(size_of(c.dtype)),
      shards_(shards_of(c, party.size())),
      steps_(direct_schedule(party.size(), party.index)),
      segments_(count_segments(shards_, segment_elements(party, c))),
      rounds_(*std::max_element(segments_.begin(), segments_.end())),
      window_(window_for(party)),
      lag_((window_ - 2) / 2),
      slot_bytes_(std::min(segment_elements(party, c), longest(shards_)) * element_bytes_),
      scratch_(party.scratch.take(std::min(window_, rounds_) * shards_.size() * slot_bytes_)),
      in_own_place_(!gathers_ && overlaps(c.in, c.out)),
      tree_(tree_of(c)) {}

void DirectReduction::run() {
  if (tree_.empty()) return;
  pieces_.resize(rounds_);
  rest_.resize(rounds_);
  for (std::size_t k = 0; k < std::min(window_, rounds_); ++k) {
    expect_pieces(k);
    open(k);
  }
  for (std::size_t j = 0; j < rounds_ + lag_; ++j) {
    if (j < segments_of(me_)) sum(j);
    if (j >= lag_) close(j - lag_);
  }
  const Shard mine = shards_[static_cast<std::size_t>(me_)];
  if (in_own_place_) std::memmove(c_.out.data, result_of(mine), mine.size * element_bytes_);
}

std::byte* DirectReduction::result_of(Shard piece) const {
  if (gathers_) return c_.out.data + piece.begin * element_bytes_;
  if (in_own_place_) return c_.in.data + piece.begin * element_bytes_;
  return c_.out.data + (piece.begin - shards_[static_cast<std::size_t>(me_)].begin) * element_bytes_;
}

// Messages are numbered 2k (a piece of segment k) and 2k+1 (its result, or the credit).

void DirectReduction::expect_pieces(std::size_t k) {
  if (k >= segments_of(me_)) return;
  const std::size_t bytes = piece(me_, k).size * element_bytes_;
  for (const Step& step : steps_) {
    if (!step.reduce || !adds(step.from)) continue;
    pieces_[k].push_back(mail_.receive(step.from, static_cast<std::uint32_t>(2 * k), slot(step.from, k, bytes)));
  }
}

void DirectReduction::open(std::size_t k) {
  const auto number = static_cast<std::uint32_t>(2 * k);
  for (const Step& step : steps_) {
    if (step.reduce) {
      if (!adds(me_) || k >= segments_of(step.send)) continue;
      rest_[k].push_back(mail_.send(step.to, number, bytes_of(c_.in.data, piece(step.send, k), element_bytes_)));
      if (gathers_ || k + window_ >= segments_of(step.send)) continue;
      rest_[k].push_back(mail_.receive(step.to, number + 1, {}));
    } else if (gathers_ && k < segments_of(step.recv)) {
      const auto place = bytes_of(c_.out.data, piece(step.recv, k), element_bytes_);
      rest_[k].push_back(mail_.receive(step.from, number + 1, place));
    }
  }
}

void DirectReduction::sum(std::size_t k) {
  mail_.wait(pieces_[k]);
  const Shard segment = piece(me_, k);
  const std::size_t bytes = segment.size * element_bytes_;
  std::vector<const std::byte*> inputs;
  for (int member = 0; member < party_.size(); ++member) {
    if (!adds(member)) continue;
    inputs.push_back(member == me_ ? c_.in.data + segment.begin * element_bytes_ : slot(member, k, bytes).data());
  }
  reduce_tree({c_.dtype, c_.op, scaling_of(c_)}, tree_, inputs, result_of(segment), segment.size);
  if (k + window_ < rounds_) expect_pieces(k + window_);
  const bool credits = k + window_ < segments_of(me_);
  for (const Step& step : steps_) {
    if (step.reduce) continue;
    const auto number = static_cast<std::uint32_t>(2 * k + 1);
    if (gathers_) {
      rest_[k].push_back(mail_.send(step.to, number, {result_of(segment), bytes}));
    } else if (credits && adds(step.to)) {
      rest_[k].push_back(mail_.send(step.to, number, {}));
    }
  }
}

void DirectReduction::close(std::size_t k) {
  mail_.wait(rest_[k]);
  if (k + window_ < rounds_) open(k + window_);
}

}  // namespace

void direct_reduction(const Party& party, const Collective& collective) {
  DirectReduction(party, collective).run();
}

}  // namespace horo
