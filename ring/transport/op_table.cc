// Messages and receives match by (channel, plan, segment), and in the order of posting where these are equal. If two
// ranks differ in the tensors of a plan (another key hash or length), both end that plan and send a notice to every
// peer in it, so that no rank waits for a message that is never sent. All other plans continue.

#include "ring/transport/op_table.h"

#include <algorithm>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/say.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

std::string difference_of(int peer, const Tag& mine, std::size_t my_bytes, const Tag& theirs,
                          std::uint64_t their_bytes) {
  const auto where = say("channel ", mine.channel, ", plan ", mine.plan, ", segment ", mine.segment, ": ");
  if (mine.key_hash != theirs.key_hash) {
    return say(where, "rank ", peer, " runs other tensors under this plan (key hash ", std::hex, theirs.key_hash,
               ", expected ", mine.key_hash, ")");
  }
  return say(where, "rank ", peer, " sent ", their_bytes, " bytes, expected ", my_bytes);
}

}  // namespace

OpTable::OpTable(int size, std::size_t max_early_bytes)
    : max_early_bytes_(max_early_bytes), operations_(1), peers_(static_cast<std::size_t>(size)) {}

// The number of an operation is its place in operations_ and the generation of that place, so a stale number finds no
// operation.
OpTable::Op OpTable::add(Operation operation) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(operations_.size()));
    operations_.emplace_back();
  }
  const std::uint32_t at = free_.back();
  free_.pop_back();
  operation.generation = operations_[at].generation + 1;
  operation.number = ++posted_;
  operation.used = true;
  const auto cancelled = cancelled_.find({operation.tag.channel, operation.tag.plan});
  if (cancelled != cancelled_.end()) {
    operation.ended = true;
    operation.mismatch = cancelled->second.why;
    notify(cancelled->second, operation.peer, operation.tag);
  }
  operations_[at] = std::move(operation);
  return Op{operations_[at].generation} << 32 | at;
}

OpTable::Operation* OpTable::find(Op op) {
  const auto at = static_cast<std::uint32_t>(op);
  if (at == 0 || at >= operations_.size()) return nullptr;
  Operation& operation = operations_[at];
  return operation.used && operation.generation == static_cast<std::uint32_t>(op >> 32) ? &operation : nullptr;
}

void OpTable::forget(Op op) {
  Operation* operation = find(op);
  if (operation == nullptr) return;
  operation->used = false;
  operation->mismatch.clear();
  free_.push_back(static_cast<std::uint32_t>(op));
}

OpTable::Op OpTable::add_send(int peer, const Tag& tag, std::span<const std::byte> out) {
  const Op op = add({.sends = true, .peer = peer, .tag = tag, .out = out, .in = {}, .mismatch = {}});
  if (!find(op)->ended) peers_[index(peer)].sends[tag.channel].push_back(op);
  return op;
}

OpTable::Op OpTable::add_recv(int peer, const Tag& tag, std::span<std::byte> in, std::optional<EarlyMessage>& early) {
  const Op op = add({.peer = peer, .tag = tag, .out = {}, .in = in, .mismatch = {}});
  if (find(op)->ended) return op;
  Peer& from = peers_[index(peer)];
  const auto found = from.early.find(key_of(tag));
  if (found == from.early.end()) {
    from.posted.emplace(key_of(tag), op);
    return op;
  }
  EarlyMessage message = std::move(found->second);
  from.early.erase(found);
  from.early_bytes -= message.bytes.size() + kFrameBytes;
  if (settle(op, message.tag, message.bytes.size()).place == Place::kPosted) early = std::move(message);
  return op;
}

std::optional<Outgoing> OpTable::next_send(int peer) {
  Peer& to = peers_[index(peer)];
  if (!to.notices.empty()) {
    Outgoing notice = std::move(to.notices.front());
    to.notices.pop_front();
    notice.bytes = notice.notice;
    return notice;
  }
  auto turn = to.sends.upper_bound(to.last_channel);
  for (std::size_t tried = 0; tried < to.sends.size(); ++tried, ++turn) {
    if (turn == to.sends.end()) turn = to.sends.begin();
    if (turn->second.empty()) continue;
    const Op op = turn->second.front();
    turn->second.pop_front();
    to.last_channel = turn->first;
    const Operation* operation = find(op);
    HORO_CHECK(operation != nullptr);
    return Outgoing{op, operation->tag, operation->out, {}};
  }
  return std::nullopt;
}

std::optional<OpTable::Expected> OpTable::expected(int peer) const {
  const Operation* oldest = nullptr;
  for (const auto& [key, op] : peers_[index(peer)].posted) {
    const Operation* operation = find(op);
    if (oldest == nullptr || operation->number < oldest->number) oldest = operation;
  }
  if (oldest == nullptr) return std::nullopt;
  return Expected{oldest->tag, oldest->in};
}

// The message for `op` is known; if it does not fit, its plan is to be cancelled.
OpTable::Match OpTable::settle(Op op, const Tag& tag, std::uint64_t length) {
  const Operation& operation = *find(op);
  if (operation.tag.key_hash == tag.key_hash && operation.in.size() == length)
    return {Place::kPosted, op, operation.in};
  cancels_.push_back(
      {tag.channel, tag.plan, difference_of(operation.peer, operation.tag, operation.in.size(), tag, length)});
  return {Place::kDropped, 0, {}};
}

OpTable::Match OpTable::match(int peer, const Tag& tag, std::uint64_t length) {
  if (is_cancelled(tag.channel, tag.plan)) return {Place::kDropped, 0, {}};
  Peer& from = peers_[index(peer)];
  const auto found = from.posted.find(key_of(tag));
  if (found != from.posted.end()) {
    const Op op = found->second;
    from.posted.erase(found);
    return settle(op, tag, length);
  }
  const std::size_t room = max_early_bytes_ - std::min(max_early_bytes_, from.early_bytes);
  if (room < kFrameBytes || length > room - kFrameBytes) return {};
  from.early_bytes += length + kFrameBytes;
  return {Place::kEarly, 0, {}};
}

OpTable::Match OpTable::keep(int peer, EarlyMessage& early) {
  Peer& from = peers_[index(peer)];
  const std::size_t length = early.bytes.size();
  from.early_bytes -= length + kFrameBytes;
  const Match now = is_cancelled(early.tag.channel, early.tag.plan) || from.posted.contains(key_of(early.tag))
                        ? match(peer, early.tag, length)
                        : Match{Place::kEarly, 0, {}};
  if (now.place != Place::kEarly) return now;
  from.early_bytes += length + kFrameBytes;
  from.early.emplace(key_of(early.tag), std::move(early));
  return now;
}

void OpTable::sent(const Outgoing& message, std::size_t frame_bytes) {
  if (message.op != 0) return end(message.op, frame_bytes);
  if (message.tag.segment == kCancelSegment) --open_notices_;
}

void OpTable::end(Op op, std::size_t frame_bytes) {
  Operation* operation = find(op);
  if (operation == nullptr || operation->ended) return;
  operation->ended = true;
  const Traffic sent{operation->out.size() + frame_bytes, 0, 1, 0};
  const Traffic received{0, operation->in.size() + frame_bytes, 0, 1};
  traffic_[operation->tag.channel] += operation->sends ? sent : received;
}

void OpTable::drop_plan(Peer& peer, PlanKey plan) {
  const auto begin = peer.posted.lower_bound({plan.first, plan.second, 0});
  const auto end = peer.posted.upper_bound({plan.first, plan.second, kCancelSegment});
  peer.posted.erase(begin, end);
  const auto early_begin = peer.early.lower_bound({plan.first, plan.second, 0});
  const auto early_end = peer.early.upper_bound({plan.first, plan.second, kCancelSegment});
  for (auto it = early_begin; it != early_end; ++it) peer.early_bytes -= it->second.bytes.size() + kFrameBytes;
  peer.early.erase(early_begin, early_end);
  const auto sends = peer.sends.find(plan.first);
  if (sends == peer.sends.end()) return;
  std::erase_if(sends->second, [&](Op op) { return find(op) == nullptr || find(op)->tag.plan == plan.second; });
}

// Queues a notice, once per peer; the operation with the peer may be posted before or after the cancellation.
void OpTable::notify(Cancelled& cancelled, int peer, const Tag& tag) {
  if (cancelled.is_notified[index(peer)]) return;
  cancelled.is_notified[index(peer)] = true;
  ++open_notices_;
  const auto text = std::as_bytes(std::span(cancelled.why));
  const Tag notice{tag.channel, tag.plan, kCancelSegment, tag.key_hash};
  peers_[index(peer)].notices.push_back({0, notice, {}, {text.begin(), text.end()}});
}

void OpTable::cancel(const PlanCancel& cancel) {
  HORO_CHECK(!cancel.why.empty());  // an empty text means success
  const PlanKey plan{cancel.channel, cancel.plan};
  const auto [entry, is_new] = cancelled_.emplace(plan, Cancelled{cancel.why, std::vector<bool>(peers_.size())});
  if (!is_new) return;
  cancel_order_.push_back(plan);
  if (cancel_order_.size() > kMaxCancelled) {
    cancelled_.erase(cancel_order_.front());
    cancel_order_.pop_front();
  }
  for (Operation& operation : operations_) {
    if (!operation.used || operation.tag.channel != cancel.channel || operation.tag.plan != cancel.plan) continue;
    if (!operation.ended) operation.mismatch = cancel.why;
    operation.ended = true;
    notify(entry->second, operation.peer, operation.tag);
  }
  for (Peer& peer : peers_) drop_plan(peer, plan);
}

bool OpTable::finish(std::span<const Op> ops) {
  const Operation* cancelled = nullptr;
  for (const Op op : ops) {
    const Operation* operation = find(op);
    HORO_CHECK(operation != nullptr);
    if (!operation->ended) return false;
    if (!operation->mismatch.empty()) cancelled = operation;
  }
  if (cancelled == nullptr) {
    for (const Op op : ops) forget(op);
    return true;
  }
  const Mismatch mismatch(cancelled->mismatch);
  forget_plan({cancelled->tag.channel, cancelled->tag.plan});
  for (const Op op : ops) forget(op);
  throw mismatch;
}

void OpTable::forget_plan(PlanKey plan) {
  for (std::uint32_t at = 1; at < operations_.size(); ++at) {
    const Operation& operation = operations_[at];
    if (operation.used && PlanKey{operation.tag.channel, operation.tag.plan} == plan)
      forget(Op{operation.generation} << 32 | at);
  }
}

std::vector<int> OpTable::waiting_for(std::span<const Op> ops) const {
  std::vector<int> peers;
  for (const Op op : ops) {
    const Operation* operation = find(op);
    if (operation != nullptr && !operation->ended) peers.push_back(operation->peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

std::optional<Tag> OpTable::first_open(std::span<const Op> ops) const {
  for (const Op op : ops) {
    const Operation* operation = find(op);
    if (operation != nullptr && !operation->ended) return operation->tag;
  }
  return std::nullopt;
}

Traffic OpTable::traffic(std::uint32_t channel) const {
  const auto found = traffic_.find(channel);
  return found == traffic_.end() ? Traffic{} : found->second;
}

}  // namespace horo
