#include "ring/group/block_exchange.h"

#include <algorithm>

#include "horo/base/error.h"

namespace horo {

void CellMessages::wait(Op op) {
  wait(std::span(&op, 1));
  std::erase(open_, op);
}

void CellMessages::wait_for_all() {
  wait(open_);
  open_.clear();
}

void CellMessages::wait(std::span<const Op> ops) {
  try {
    messenger_.wait(ops);
  } catch (const Mismatch&) {
    open_.clear();
    throw;
  }
}

BlockExchange::BlockExchange(const Context& context)
    : of_(context), position_(context.plan.cells.position_of(context.group.index)) {
  if (of_.memory) first_ = of_.memory->take_steps(cells().length());
}

void BlockExchange::wait_for_buffer(std::size_t k) const {
  if (k < kCellsInBuffers) return;
  of_.memory->wait_for_progress(c(), SyncProgress::kConsumed, first_ + k - kCellsInBuffers);
}

void BlockExchange::publish(SyncProgress progress, std::size_t k) const {
  if (of_.memory) of_.memory->publish(progress, first_ + k);
}

void BlockExchange::wait_until_read() const {
  of_.memory->wait_for_progress(c(), SyncProgress::kConsumed, of_.memory->last_step());
}

void BlockExchange::move_messages(std::size_t k) const {
  if (k > 0 && !of_.plan.links.empty()) of_.group.transport.has_left(of_.group.transport.rank());
}

}  // namespace horo
