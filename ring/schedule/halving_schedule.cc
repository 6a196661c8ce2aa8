// Recursive halving and doubling in canonical order. Members are cut into blocks whose sizes are powers of two, the
// largest first, as the canonical tree cuts them. Inside a block, pairs at distance 1, 2, 4 ... exchange halves of what
// they hold, so that after each exchange a member holds the sum over an aligned run of members. Then the smallest block
// sends its sums to the next larger block, which adds them on the right, and so on up to the largest block. The results
// take the same way back in reverse order.

#include <algorithm>
#include <bit>

#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

constexpr int kSum = Schedule::kFirstScratch;
constexpr int kPartial = kSum + 1;
constexpr int kRaw = kSum + 2;

struct Block {
  int first = 0;  // member
  int bits = 0;   // the block has 1 << bits members
  int fold = 0;   // round in which the block receives the sums of the next smaller block
};

// The chunks that a member holds.
struct Range {
  int first = 0;
  int count = 0;
  Part in(int area) const { return {area, first, count}; }
  Range half(bool upper) const { return {upper ? first + count / 2 : first, count / 2}; }
};

class HalvingDoubling {
 public:
  HalvingDoubling(const Shape& shape, int member) : shape_(shape), me_(member) {
    for (int first = 0; first < shape.size;) {
      const int bits = static_cast<int>(std::bit_width(static_cast<unsigned>(shape.size - first))) - 1;
      blocks_.push_back({first, bits, 0});
      first += 1 << bits;
    }
    chunks_ = 1 << blocks_.front().bits;
    int folded = 0;
    for (std::size_t b = blocks_.size() - 1; b-- > 0;) {
      blocks_[b].fold = std::max(blocks_[b].bits, folded);
      folded = blocks_[b].fold + 1;
    }
    turn_ = blocks_.size() > 1 ? blocks_.front().fold + 1 : blocks_.front().bits;
    while (mine_ + 1 < blocks_.size() && me_ >= blocks_[mine_ + 1].first) ++mine_;
  }

  Schedule make() {
    Schedule schedule = blank("halving-doubling", shape_, me_, chunks_);
    schedule.order = matches_tree() ? Order::kCanonical : Order::kFast;
    schedule.scratch = {{chunks_, true}, {chunks_, true}, {chunks_, false}};
    schedule.rounds.resize(static_cast<std::size_t>(rounds()));
    if (!any(0, shape_.size)) return schedule;
    halve(schedule);
    fold(schedule);
    finish(schedule);
    unfold(schedule);
    return schedule;
  }

 private:
  const Block& block() const { return blocks_[mine_]; }
  int offset() const { return me_ - block().first; }

  // The canonical tree is over ids; this schedule sums in the tree over places.
  bool matches_tree() const {
    Shape places = shape_;
    for (std::size_t i = 0; i < places.contributors.size(); ++i) {
      if (places.contributors[i] >= 0) places.contributors[i] = static_cast<std::int64_t>(i);
    }
    const auto leaf = [](int member) { return member; };
    return whole_tree(canonical_nodes(shape_), leaf) == whole_tree(canonical_nodes(places), leaf);
  }

  int rounds() const {
    int rounds = std::max(1, turn_);
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      rounds = std::max(rounds, turn_ + static_cast<int>(b) + blocks_[b].bits);
    }
    return rounds;
  }

  bool any(int first, int count) const {
    for (int member = first; member < first + count; ++member) {
      if (contributes(shape_, member)) return true;
    }
    return false;
  }
  // Whether the aligned run of 2^bits members that contains this one has a contributor.
  bool run_has(int member, int bits) const {
    const int in_block = member - block().first;
    return any(block().first + (in_block >> bits << bits), 1 << bits);
  }

  // The chunks that a member holds after `bits` halvings; `offset`: its place in its block.
  Range range(int offset, int bits) const {
    Range range{0, chunks_};
    for (int bit = 0; bit < bits; ++bit) range = range.half((offset >> bit & 1) != 0);
    return range;
  }

  Round& at(Schedule& schedule, int round) const { return schedule.rounds[static_cast<std::size_t>(round)]; }
  // The area for a sum; the last sum is written to the output directly.
  int target(bool last) const { return last ? static_cast<int>(Schedule::kOut) : kSum; }

  void halve(Schedule& schedule) const {
    for (int bit = 0; bit < block().bits; ++bit) {
      const int partner = block().first + (offset() ^ 1 << bit);
      const bool upper = (offset() >> bit & 1) != 0;
      const Range held = range(offset(), bit);
      const int own = bit == 0 ? static_cast<int>(Schedule::kIn) : kSum;
      const int arrival = bit == 0 ? kRaw : kPartial;
      Round& round = at(schedule, bit);
      const bool mine = run_has(me_, bit), theirs = run_has(partner, bit);
      if (mine) round.send.push_back({partner, held.half(!upper).in(own)});
      if (theirs) round.receive.push_back({partner, held.half(upper).in(arrival)});
      const bool last = blocks_.size() == 1 && bit + 1 == block().bits;
      add(round, held.half(upper).in(target(last)), {mine ? own : -1, theirs ? arrival : -1}, upper);
    }
  }

  // `areas`: of this member's value and of the peer's, -1 if there is none. A single value that lies in `to` already is
  // left there.
  static void add(Round& round, const Part& to, std::pair<int, int> areas, bool mine_right) {
    if (mine_right) std::swap(areas.first, areas.second);
    Combine combine{to, {}};
    if (areas.first >= 0) combine.tree.push_back(areas.first);
    if (areas.second >= 0) combine.tree.push_back(areas.second);
    if (combine.tree.size() == 2) combine.tree.push_back(Combine::kJoin);
    if (combine.tree.empty() || combine.tree == std::vector<int>{to.area}) return;
    round.combine.push_back(combine);
  }

  void fold(Schedule& schedule) const {
    if (mine_ > 0) {
      const Block& larger = blocks_[mine_ - 1];
      for (int peer = offset(); any(block().first, shape_.size - block().first) && peer < 1 << larger.bits;
           peer += 1 << block().bits) {
        const int area = block().bits == 0 ? static_cast<int>(Schedule::kIn) : kSum;
        at(schedule, larger.fold).send.push_back({larger.first + peer, range(peer, larger.bits).in(area)});
      }
    }
    if (mine_ + 1 == blocks_.size()) return;
    const Block& smaller = blocks_[mine_ + 1];
    if (!any(smaller.first, shape_.size - smaller.first)) return;
    const int peer = smaller.first + (offset() & ((1 << smaller.bits) - 1));
    const Range held = range(offset(), block().bits);
    const int arrival = smaller.bits == 0 ? kRaw : kPartial;
    Round& round = at(schedule, block().fold);
    round.receive.push_back({peer, held.in(arrival)});
    const int own = any(block().first, 1 << block().bits) ? kSum : -1;
    add(round, held.in(target(mine_ == 0)), {own, arrival}, false);
  }

  // Copies the sum to the output if the last step had nothing to add.
  void finish(Schedule& schedule) const {
    if (mine_ != 0) return;
    const Range held = range(offset(), block().bits);
    Round& last = at(schedule, std::max(0, turn_ - 1));
    const bool done = !last.combine.empty() && last.combine.back().to.area == Schedule::kOut;
    const int area = block().bits == 0 ? static_cast<int>(Schedule::kIn) : kSum;
    if (!done) last.combine.push_back({held.in(Schedule::kOut), {area}});
  }

  void unfold(Schedule& schedule) const {
    const int begin = turn_ + static_cast<int>(mine_);
    const Range held = range(offset(), block().bits);
    if (mine_ + 1 < blocks_.size()) {
      const Block& smaller = blocks_[mine_ + 1];
      const int peer = smaller.first + (offset() & ((1 << smaller.bits) - 1));
      at(schedule, begin).send.push_back({peer, held.in(Schedule::kOut)});
    }
    if (mine_ > 0) {
      const Block& larger = blocks_[mine_ - 1];
      for (int peer = offset(); peer < 1 << larger.bits; peer += 1 << block().bits) {
        at(schedule, begin - 1).receive.push_back({larger.first + peer, range(peer, larger.bits).in(Schedule::kOut)});
      }
    }
    for (int bit = block().bits - 1; bit >= 0; --bit) {
      const int partner = block().first + (offset() ^ 1 << bit);
      const Range before = range(offset(), bit + 1), theirs = range(partner - block().first, bit + 1);
      Round& round = at(schedule, begin + block().bits - 1 - bit);
      round.send.push_back({partner, before.in(Schedule::kOut)});
      round.receive.push_back({partner, theirs.in(Schedule::kOut)});
    }
  }

  const Shape& shape_;
  const int me_;
  std::vector<Block> blocks_;
  std::size_t mine_ = 0;  // block
  int chunks_ = 1;
  int turn_ = 0;  // first round that distributes results
};

}  // namespace

Schedule halving_doubling_all_reduce(const Shape& shape, int member) {
  return HalvingDoubling(shape, member).make();
}

}  // namespace horo
