// The ring all-reduce, run from its schedule. The buffer is cut into blocks of one segment per member; a few blocks are
// under way together, so that one is summed while the others travel. A partial sum travels in the accumulator type and
// is divided, scaled and rounded once, by the member that completes it. The order of summation depends on the place in
// the ring.

#include <algorithm>
#include <cstring>

#include "ring/host_algorithms.h"
#include "ring/schedule.h"

namespace horo {
namespace {

constexpr std::size_t kBlocksUnderWay = 4;

// One block on its way around the ring.
class RingBlock {
 public:
  RingBlock(const Party& party, const Collective& c, Shard block, std::span<std::byte> scratch)
      : party_(party),
        c_(c),
        mail_(party, c),
        block_(block),
        accumulator_bytes_(size_of(accumulator_of(c.dtype))),
        partial_(scratch.first(scratch.size() / 2)),
        arrival_(scratch.last(scratch.size() / 2)) {
    // The first partial sum is one's own contribution to one's own shard.
    const Shard own = shard(party.index);
    if (!is_absent(c, party.index)) widen(c.dtype, at(c.in, own), partial_.data(), own.size, c.prescale);
  }

  void start(const Step& step, std::uint32_t number) {
    ops_.clear();
    ops_.push_back(mail_.send(step.to, number, outgoing(step)));
    ops_.push_back(mail_.receive(step.from, number, incoming(step)));
  }

  void finish(const Step& step, int round) {
    mail_.wait(ops_);
    if (!step.reduce) return;
    const Shard sum = shard(step.recv);
    add_own(sum, /*arrived=*/has_partial(step.recv, round));
    std::swap(partial_, arrival_);
    const bool complete = round == party_.size() - 2;
    if (complete) narrow(c_.dtype, partial_.data(), at(c_.out, sum), sum.size, scaling_of(c_));
  }

 private:
  Shard shard(int index) const {
    const Shard inside = shard_of(block_.size, party_.size(), index);
    return {block_.begin + inside.begin, inside.size};
  }
  std::byte* at(const Buffer& buffer, Shard shard) const { return buffer.data + shard.begin * size_of(c_.dtype); }

  // Whether anybody has added to a shard that has been passed on `rounds` times since its first holder.
  bool has_partial(int shard_index, int rounds) const {
    for (int k = 0; k <= rounds; ++k) {
      if (!is_absent(c_, (shard_index + k) % party_.size())) return true;
    }
    return false;
  }

  void add_own(Shard sum, bool arrived) {
    if (is_absent(c_, party_.index)) return;
    // The old partial sum has been sent: its memory holds our contribution now.
    widen(c_.dtype, at(c_.in, sum), partial_.data(), sum.size, c_.prescale);
    if (arrived) return combine(c_.dtype, c_.op, arrival_.data(), partial_.data(), sum.size);
    std::swap(partial_, arrival_);
  }

  std::span<const std::byte> outgoing(const Step& step) const {
    const Shard part = shard(step.send);
    if (!step.reduce) return bytes_of(c_.out.data, part, size_of(c_.dtype));
    const int round = (party_.index - step.send + party_.size()) % party_.size();
    return has_partial(step.send, round) ? partial_.first(part.size * accumulator_bytes_) : partial_.first(0);
  }

  std::span<std::byte> incoming(const Step& step) const {
    const Shard part = shard(step.recv);
    if (!step.reduce) return bytes_of(c_.out.data, part, size_of(c_.dtype));
    const int round = (party_.index - 1 - step.recv + party_.size()) % party_.size();
    return has_partial(step.recv, round) ? arrival_.first(part.size * accumulator_bytes_) : arrival_.first(0);
  }

  const Party& party_;
  const Collective& c_;
  const Mail mail_;
  Shard block_;
  std::size_t accumulator_bytes_;
  std::span<std::byte> partial_;
  std::span<std::byte> arrival_;
  std::vector<Mail::Op> ops_;
};

// Round by round, every block one behind the other.
void run_blocks(std::vector<RingBlock>& blocks, const std::vector<Step>& steps, std::uint32_t first_number) {
  const auto number = [&](std::size_t block, std::size_t round) {
    return static_cast<std::uint32_t>(first_number + block * steps.size() + round);
  };
  for (std::size_t b = 0; b < blocks.size(); ++b) blocks[b].start(steps[0], number(b, 0));
  for (std::size_t round = 0; round < steps.size(); ++round) {
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      blocks[b].finish(steps[round], static_cast<int>(round));
      if (round + 1 < steps.size()) blocks[b].start(steps[round + 1], number(b, round + 1));
    }
  }
}

}  // namespace

void ring_all_reduce(const Party& party, const Collective& c) {
  const auto present = [](std::int64_t id) { return id != kAbsent; };
  if (std::none_of(c.contributors.begin(), c.contributors.end(), present)) return;
  const auto members = static_cast<std::size_t>(party.size());
  const std::size_t segment_elements = std::max<std::size_t>(1, party.segment_bytes / size_of(c.dtype));
  const Shard all{0, c.counts[0]};
  const std::size_t blocks = pieces_for(all.size, segment_elements * members);
  const std::vector<Step> steps = ring_schedule(party.size(), party.index);
  const std::size_t slot_bytes = 2 * (segment_elements + 1) * size_of(accumulator_of(c.dtype));
  const auto scratch = party.scratch.take(slot_bytes * std::min(blocks, kBlocksUnderWay));
  for (std::size_t first = 0; first < blocks; first += kBlocksUnderWay) {
    std::vector<RingBlock> under_way;
    for (std::size_t b = first; b < std::min(blocks, first + kBlocksUnderWay); ++b) {
      under_way.emplace_back(party, c, piece_of(all, blocks, b), scratch.part((b - first) * slot_bytes, slot_bytes));
    }
    run_blocks(under_way, steps, static_cast<std::uint32_t>(first * steps.size()));
  }
}

}  // namespace horo
