// The all_gather. A member copies its own cells into its output and receives the cells whose partner it is there. The
// other members of its host copy them from its output, if that is in an arena, or from its slice buffers.
//
// No deadlock: a member waits for messages that were posted before any wait, and for smaller cells of other members.
#include <algorithm>

#include "ring/group/block_exchange.h"

namespace horo {
namespace {

constexpr std::size_t kReceives = 64;  // of cells, posted ahead

}  // namespace

BlockGather::BlockGather(const Context& context) : BlockExchange(context), receives_(cells().length()) {
  const bool has_offsets = of_.memory != nullptr && of_.plan.bytes > kFlagPayloadBytes;
  for (int position = 0; position < neighbours(); ++position) {
    sources_.push_back(has_offsets ? of_.memory->output_of(position, of_.plan.bytes) : nullptr);
  }
}

// The cells of other members are collected one cell later than the own ones are provided, so that no member waits for
// data whose production has just begun.
void BlockGather::run() {
  send_own();
  for (std::size_t k = 0; k <= cells().length(); ++k) {
    receive_until(std::min(cells().length(), k + kReceives));
    if (k < cells().length()) provide(k);
    if (k > 0) collect(k - 1);
  }
  const bool is_read = of_.memory != nullptr && sources_[static_cast<std::size_t>(position_)] != nullptr;
  if (is_read && cells().length() > 0) wait_until_read();
}

void BlockGather::send_own() {
  const Shard block = cells().block(me());
  for (std::uint32_t number = 0; number < cells().cells_of(me()); ++number) {
    const Shard range = cells().cell(me(), number).range;
    for (int k = 1; k < cells().hosts().size(); ++k) {
      const int host = (cells().host() + k) % cells().hosts().size();
      messages().send(cells().partner(me(), host, number), number,
                      {c().in.data + (range.begin - block.begin), range.size});
    }
  }
}

void BlockGather::receive_until(std::size_t end) {
  for (; received_ < end; ++received_) {
    const HostCells::Cell& cell = own_stream()[received_];
    if (cell.block == HostCells::kNone || is_own(cell)) continue;
    receives_[received_] = messages().receive(cell.block, cell.number, {of_.out + cell.range.begin, cell.range.size});
  }
}

void BlockGather::provide(std::size_t k) {
  const HostCells::Cell& cell = own_stream()[k];
  std::byte* const to = of_.out + cell.range.begin;
  if (is_own(cell)) {
    const std::byte* const from = c().in.data + (cell.range.begin - cells().block(me()).begin);
    if (from != to) copy_bytes(to, from, cell.range.size);
    move_messages(k);
  } else if (cell.block != HostCells::kNone) {
    messages().wait(receives_[k]);
  }
  if (of_.memory == nullptr) return;
  if (sources_[static_cast<std::size_t>(position_)] == nullptr) {
    wait_for_buffer(k);
    of_.memory->copy_to_slice_buffer(buffer_of(position_, k), to, cell.range.size, ShmSync::kAllMembers);
  }
  publish(SyncProgress::kStaged, k);
}

// Begins with the next member, so that not all members read the same one at a time.
void BlockGather::collect(std::size_t k) {
  for (int i = 1; i < neighbours(); ++i) {
    const int position = (position_ + i) % neighbours();
    const HostCells::Cell& cell = cell_of(position, k);
    if (cell.block == HostCells::kNone) continue;
    of_.memory->wait_for_progress(c(), SyncProgress::kStaged, first_ + k, position);
    const std::byte* const source = sources_[static_cast<std::size_t>(position)];
    copy_bytes(of_.out + cell.range.begin, source ? source + cell.range.begin : buffer_of(position, k),
               cell.range.size);
  }
  publish(SyncProgress::kConsumed, k);
}

}  // namespace horo
