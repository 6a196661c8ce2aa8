// The reduce_scatter. For each cell whose partner it is a member sums the data of its host's members, as a partial
// result, and sends it to the owner of the block. For its own cells it joins the data of its host's members and the
// partial sums of the other hosts. Data are read from inputs in arenas, or from slice buffers.
//
// No deadlock: a member handles its own cells some turns after the other hosts have handled these cells, and in its
// host members wait for smaller cells only.
#include <algorithm>

#include "ring/group/block_exchange.h"

namespace horo {

BlockReduction::BlockReduction(const Context& context, std::span<std::byte> scratch)
    : BlockExchange(context),
      scratch_(scratch),
      slot_bytes_(slot_bytes(context.plan, context.c)),
      sends_(context.plan.host_contributes[static_cast<std::size_t>(context.plan.cells.host())] != 0),
      whole_(context.plan.tree),
      inputs_(context.plan.leaves.size()),
      sent_(kSends),
      receives_(kReceives) {
  sums_.plan(of_.plan.contributors);
  const bool has_offsets = of_.memory != nullptr && of_.plan.bytes > kFlagPayloadBytes;
  for (int position = 0; position < neighbours(); ++position) {
    const bool is_shared = has_offsets && contributes(position);
    sources_.push_back(is_shared ? of_.memory->input_of(position, of_.plan.bytes) : nullptr);
  }
}

std::size_t BlockReduction::slot_bytes(const BlockPlan& plan, const Collective& c) {
  return plan.cells.most_bytes() / size_of(c.dtype) * accumulator_bytes(c.dtype, c.op);
}

std::size_t BlockReduction::scratch_bytes(const BlockPlan& plan, const Collective& c) {
  return (kSends + kReceives * static_cast<std::size_t>(plan.cells.hosts().size())) * slot_bytes(plan, c);
}

void BlockReduction::run() {
  receive_until(std::min<std::size_t>(kReceives, cells().cells_of(me())));
  for (std::size_t k = 0; k < cells().length(); ++k) {
    if (k == 0) stage(0);
    if (k + 1 < cells().length()) stage(k + 1);
    const HostCells::Cell& cell = own_stream()[k];
    if (is_own(cell)) {
      sum_own(k);
    } else if (cell.block != HostCells::kNone && sends_) {
      send_partial(k);
    }
    publish(SyncProgress::kConsumed, k);
  }
  const bool is_read = of_.memory != nullptr && sources_[static_cast<std::size_t>(position_)] != nullptr;
  if (is_read && cells().length() > 0) wait_until_read();
}

std::byte* BlockReduction::receive_slot(std::uint32_t number, std::size_t host) const {
  const std::size_t hosts = of_.plan.host_contributes.size();
  return scratch_.data() + (kSends + number % kReceives * hosts + host) * slot_bytes_;
}

void BlockReduction::receive_until(std::size_t end) {
  const std::size_t partial = accumulator_bytes(c().dtype, c().op);
  for (; received_ < end; ++received_) {
    const auto number = static_cast<std::uint32_t>(received_);
    const std::size_t bytes = cells().cell(me(), number).range.size / size_of(c().dtype) * partial;
    auto& ops = receives_[number % kReceives];
    for (int host = 0; host < cells().hosts().size(); ++host) {
      const auto at = static_cast<std::size_t>(host);
      if (host == cells().host() || of_.plan.host_contributes[at] == 0) continue;
      ops.push_back(messages().receive(cells().partner(me(), host, number), number, {receive_slot(number, at), bytes}));
    }
  }
}

// ---- Inputs of the members of this host.

// Where the cell of a reader begins in the slice buffers of a source.
std::size_t BlockReduction::place_of(int source, int reader) const {
  return static_cast<std::size_t>(reader < source ? reader : reader - 1) * cells().most_bytes();
}

// Copies the other members' cells of this member's input into its slice buffers.
void BlockReduction::stage(std::size_t k) {
  const bool stages = contributes(position_) && sources_[static_cast<std::size_t>(position_)] == nullptr;
  if (of_.memory == nullptr || !stages) return;
  wait_for_buffer(k);
  for (int reader = 0; reader < neighbours(); ++reader) {
    const HostCells::Cell& cell = cell_of(reader, k);
    if (reader == position_ || cell.block == HostCells::kNone) continue;
    of_.memory->copy_to_slice_buffer(buffer_of(position_, k) + place_of(position_, reader),
                                     c().in.data + cell.range.begin, cell.range.size, reader);
  }
  publish(SyncProgress::kStaged, k);
}

void BlockReduction::wait_for_inputs(std::size_t k) const {
  for (int source = 0; source < neighbours(); ++source) {
    if (source == position_ || !contributes(source) || sources_[static_cast<std::size_t>(source)] != nullptr) continue;
    of_.memory->wait_for_progress(c(), SyncProgress::kStaged, first_ + k, source);
  }
}

const std::byte* BlockReduction::input_of(int position, std::size_t k) const {
  const std::size_t begin = own_stream()[k].range.begin;
  if (position == position_) return c().in.data + begin;
  if (const std::byte* const source = sources_[static_cast<std::size_t>(position)]) return source + begin;
  return buffer_of(position, k) + place_of(position, position_);
}

// ---- Sums.

void BlockReduction::send_partial(std::size_t k) {
  const HostCells::Cell& cell = own_stream()[k];
  const std::size_t slot = next_send_++ % kSends;
  if (sent_[slot] != 0) messages().wait(sent_[slot]);
  std::byte* const to = scratch_.data() + slot * slot_bytes_;
  wait_for_inputs(k);
  sums_.sum_partial(c(), to, cell.range.size, [&](int position) { return input_of(position, k); });
  const std::size_t bytes = cell.range.size / size_of(c().dtype) * accumulator_bytes(c().dtype, c().op);
  sent_[slot] = messages().send(cell.block, cell.number, {to, bytes});
  move_messages(k);
}

void BlockReduction::sum_own(std::size_t k) {
  const HostCells::Cell& cell = own_stream()[k];
  auto& ops = receives_[cell.number % kReceives];
  for (const CellMessages::Op op : ops) messages().wait(op);
  ops.clear();
  wait_for_inputs(k);
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const BlockPlan::Leaf& leaf = of_.plan.leaves[i];
    const bool is_partial = leaf.host != HostCells::kNone;
    const std::byte* const data =
        is_partial ? receive_slot(cell.number, static_cast<std::size_t>(leaf.host)) : input_of(leaf.position, k);
    inputs_[i] = {data, is_partial};
  }
  std::byte* const to = of_.out + (cell.range.begin - cells().block(me()).begin);
  const Reduction reduction{c().dtype, c().op, {c().prescale, c().postscale, c().divisor}, false, nullptr};
  whole_.run(reduction, inputs_, {&to, 1}, cell.range.size / size_of(c().dtype));
  receive_until(std::min<std::size_t>(cells().cells_of(me()), cell.number + 1 + kReceives));
}

}  // namespace horo
