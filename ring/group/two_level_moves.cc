#include "ring/group/two_level_moves.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "horo/base/error.h"
#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

constexpr std::size_t kCellUnit = 64;           // whole elements of every type
constexpr std::size_t kMostMembersOfHost = 64;  // with more of them the cells of a reduce_scatter are too short

// Of all blocks. With 2 hosts of 2 ranks, 64 KiB take 22 us by messages and 53 us so; 1 MiB 690 and 460 us.
constexpr std::size_t kLeastBytes = 512 << 10;

// FNV-1a, by words of 64 bits.
std::uint64_t mixed_in(std::uint64_t hash, std::uint64_t word) {
  return (hash ^ word) * 0x100000001b3;
}

std::uint64_t hash_of(const Collective& c) {
  std::uint64_t rest = mixed_in(0xcbf29ce484222325, static_cast<std::uint64_t>(c.order));
  for (const std::size_t count : c.counts) rest = mixed_in(rest, count);
  for (const std::int64_t id : c.contributors) rest = mixed_in(rest, static_cast<std::uint64_t>(id));
  return signature_shape(c.kind, c.dtype, reduces(c.kind) ? c.op : ReduceOp::kSum, rest);
}

std::size_t widest(const HostsOfGroup& hosts) {
  std::size_t most = 0;
  for (const auto& members : hosts.members) most = std::max(most, members.size());
  return most;
}

// Of a reduce_scatter: a host sends one partial sum where each of its contributors would send its elements.
bool sends_less(const Collective& c, const std::vector<int>& hosts) {
  std::set<int> senders;
  std::size_t contributors = 0;
  for (std::size_t member = 0; member < hosts.size(); ++member) {
    if (c.contributors[member] == kAbsent) continue;
    senders.insert(hosts[member]);
    ++contributors;
  }
  return senders.size() * accumulator_bytes(c.dtype, c.op) < contributors * size_of(c.dtype);
}

}  // namespace

TwoLevelMoves::TwoLevelMoves(const GroupContext& context, std::vector<int> hosts, ShmSync* memory)
    : context_(context), hosts_(std::move(hosts)), memory_(memory) {}

bool TwoLevelMoves::takes(const Collective& c, const std::vector<int>& hosts, bool at_any_size) {
  const std::size_t bytes = std::accumulate(c.counts.begin(), c.counts.end(), std::size_t{0}) * size_of(c.dtype);
  if (!at_any_size && bytes < kLeastBytes) return false;
  if (c.kind == CollectiveKind::kAllGather) return true;
  if (c.kind != CollectiveKind::kReduceScatter || c.op == ReduceOp::kCustom || !sends_less(c, hosts)) return false;
  const HostsOfGroup found = hosts_of_group(c.contributors, hosts);
  return widest(found) <= kMostMembersOfHost && (c.order == Order::kFast || found.are_subtrees);
}

// ---- Plan.

void TwoLevelMoves::plan(const Collective& c) {
  if (plan_ && planned_ == std::tie(c.kind, c.dtype, c.op, c.order, c.counts, c.contributors)) return;
  const bool sums = reduces(c.kind);
  std::vector<std::int64_t> contributors(hosts_.size(), kAbsent);
  if (sums) contributors = c.contributors;
  HostsOfGroup hosts = hosts_of_group(contributors, hosts_);
  std::vector<std::size_t> begins{0};
  for (const std::size_t count : c.counts) begins.push_back(begins.back() + count * size_of(c.dtype));
  const std::size_t bytes = begins.back(), readers = std::max<std::size_t>(2, widest(hosts)) - 1;
  const std::size_t cell =
      sums ? BlockReduction::kCellsBytes / readers / kCellUnit * kCellUnit : BlockGather::kCellBytes;
  const HostCells::Lags lags = sums ? BlockReduction::kLags : BlockGather::kLags;
  const int host = hosts.host_of(context_.index);
  HostCells cells(hosts, host, std::move(begins), cell, lags);
  std::vector<HostCells::Link> links = cells.links_of(context_.index);
  plan_.emplace(BlockPlan{std::move(cells), std::move(links), hash_of(c), bytes});
  if (sums) plan_sums(hosts, c);
  planned_ = {c.kind, c.dtype, c.op, c.order, c.counts, c.contributors};
}

// The canonical tree over the hosts, in which the tree over the members of this host takes this host's place.
void TwoLevelMoves::plan_sums(const HostsOfGroup& hosts, const Collective& c) {
  std::vector<std::int64_t> of_hosts, own;
  std::vector<int> contributing, positions;
  for (int host = 0; host < hosts.size(); ++host) {
    const std::int64_t id = hosts.contributors[static_cast<std::size_t>(host)];
    plan_->host_contributes.push_back(id != kAbsent);
    if (id != kAbsent) of_hosts.push_back(id), contributing.push_back(host);
  }
  for (const int member : hosts.members[static_cast<std::size_t>(plan_->cells.host())]) {
    const std::int64_t id = c.contributors[static_cast<std::size_t>(member)];
    plan_->contributors.push_back(id);
    if (id != kAbsent) own.push_back(id), positions.push_back(plan_->cells.position_of(member));
  }
  const auto add_leaf = [&](BlockPlan::Leaf leaf) {
    plan_->tree.push_back({static_cast<int>(plan_->leaves.size())});
    plan_->leaves.push_back(leaf);
  };
  for (const TreeStep& step : canonical_tree(of_hosts)) {
    if (step.input == TreeStep::kJoin) {
      plan_->tree.push_back(step);
    } else if (const int host = contributing[static_cast<std::size_t>(step.input)]; host != plan_->cells.host()) {
      add_leaf({HostCells::kNone, host});
    } else {
      for (const TreeStep& inner : canonical_tree(own)) {
        if (inner.input == TreeStep::kJoin) {
          plan_->tree.push_back(inner);
        } else {
          add_leaf({positions[static_cast<std::size_t>(inner.input)], HostCells::kNone});
        }
      }
    }
  }
}

// ---- Run.

void TwoLevelMoves::run(const Collective& c) {
  plan(c);
  if (reduces(c.kind) && plan_->leaves.empty()) return;  // no member contributes
  if (!needs_own_output(context_, c)) return exchange(c, c.out.data, false);
  const std::size_t bytes = reduces(c.kind) ? plan_->cells.block(context_.index).size : plan_->bytes;
  const auto memory = context_.scratch.take(bytes);
  const auto out = memory.part(0, bytes);
  exchange(c, out.data(), true);
  copy_bytes(c.out.data, out.data(), out.size());
}

void TwoLevelMoves::exchange(const Collective& c, std::byte* out, bool is_own_out) {
  Collective keyed = c;
  keyed.key_hash = mixed_in(mixed_in(c.key_hash, plan_->shape), plan_->bytes);
  try {
    if (memory_) arrive(c, out, is_own_out);
  } catch (const Mismatch&) {
    keyed.key_hash = ~keyed.key_hash;
    send_mismatch(keyed);
    throw;
  }
  CellMessages messages(context_, keyed);
  const BlockExchange::Context of{context_, *plan_, memory_, c, out, messages};
  if (!reduces(c.kind)) {
    BlockGather gather(of);
    return run(gather, c, messages);
  }
  const std::size_t bytes = BlockReduction::scratch_bytes(*plan_, c);
  const auto scratch = context_.scratch.take(bytes);
  BlockReduction reduction(of, scratch.part(0, bytes));
  run(reduction, c, messages);
}

void TwoLevelMoves::arrive(const Collective& c, std::byte* out, bool is_own_out) {
  const auto offset_of = [&](bool holds, const std::byte* data) {
    const bool has_offset = holds && plan_->bytes > kFlagPayloadBytes;
    return has_offset ? memory_->arenas().own()->offset_of(data, plan_->bytes).value_or(ShmSync::kNoOffset)
                      : ShmSync::kNoOffset;
  };
  const bool sums = reduces(c.kind);
  memory_->acquire_next(c);
  memory_->arrive(c, {plan_->shape, plan_->bytes, offset_of(sums && !is_absent(c, context_.index), c.in.data),
                      offset_of(!sums && !is_own_out, out)});
  memory_->wait_for_arrival(c);
}

// After a Mismatch that this member learns from its host, its own messages end with the one from the host that differs.
void TwoLevelMoves::run(BlockExchange& exchange, const Collective& c, CellMessages& messages) const {
  try {
    exchange_empty(c, messages);
    exchange.run();
    messages.wait_for_all();
  } catch (const Mismatch&) {
    if (!memory_) throw;
    memory_->give_up();
    try {
      if (messages.are_open()) exchange.receive_rest(), messages.wait_for_all();
    } catch (const Mismatch&) {
    }
    memory_->wait_for_end(c, SyncProgress::kConsumed, memory_->last_step());
    throw;
  }
}

// Whether this member is the sender of the link's messages.
bool TwoLevelMoves::sends(const HostCells::Link& link, const Collective& c) const {
  return (reduces(c.kind) ? link.partner : link.block) == context_.index;
}

void TwoLevelMoves::exchange_empty(const Collective& c, CellMessages& messages) const {
  for (const HostCells::Link& link : plan_->links) {
    const auto host = static_cast<std::size_t>(plan_->cells.host_of(link.partner));
    const bool has_sums = !reduces(c.kind) || plan_->host_contributes[host] != 0;
    if (!link.is_empty && has_sums) continue;
    const int peer = link.block == context_.index ? link.partner : link.block;
    sends(link, c) ? messages.send(peer, link.first, {}) : messages.receive(peer, link.first, {});
  }
}

// The members of this host differ and have thrown a Mismatch. All members of the other hosts receive a message with a
// key hash that is not theirs, and throw one too.
void TwoLevelMoves::send_mismatch(const Collective& c) const {
  CellMessages messages(context_, c);
  try {
    for (const HostCells::Link& link : plan_->links) {
      const int peer = link.block == context_.index ? link.partner : link.block;
      sends(link, c) ? messages.send(peer, link.first, {}) : messages.receive(peer, link.first, {});
    }
    messages.wait_for_all();
  } catch (const Mismatch&) {
    return;
  }
}

}  // namespace horo
