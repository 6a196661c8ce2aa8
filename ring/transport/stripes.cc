// A connection takes its next stripe when the previous one is in its socket, so a slow connection takes fewer. A stripe
// is as long as one connection's share of the message, within limits: short enough that the last one does not delay the
// message, long enough that headers do not matter.
#include "ring/transport/stripes.h"

#include <algorithm>
#include <utility>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/say.h"

namespace horo {

void describe_stripe(const Stripe& stripe, Frame& frame) {
  const bool is_first = stripe.offset == 0;
  frame.kind = is_first ? FrameKind::kStriped : FrameKind::kStripe;
  frame.offset = is_first ? stripe.total : stripe.offset;
  if (!is_first) frame.key_hash = stripe.number;
}

std::optional<Outgoing> Stripes::next(bool is_first_connection, OpTable& table, int peer) {
  if (has_unsent()) return take_stripe();
  if (!is_first_connection) return std::nullopt;
  std::optional<Outgoing> message = table.next_send(peer);
  const bool is_long = message && message->op != 0 && message->bytes.size() > kWholeBytes;
  return is_long ? begin(*message) : message;
}

Outgoing Stripes::begin(const Outgoing& message) {
  HORO_CHECK(!has_unsent());
  Outbound& out = outgoing_[++last_begun_];
  out.message = {message.op, message.tag, {}, {}};
  out.total = message.bytes.size();
  unsent_ = message.bytes;
  return take_stripe();
}

Outgoing Stripes::take_stripe() {
  Outbound& out = outgoing_.at(last_begun_);
  const std::size_t share = (out.total + width_ - 1) / width_;
  const std::size_t bytes = std::min(unsent_.size(), std::clamp(share, kWholeBytes, kLongestBytes));
  // Copied bytes belong to no operation.
  Outgoing stripe{out.copied.empty() ? out.message.op : 0, out.message.tag, unsent_.first(bytes), {}};
  stripe.stripe = Stripe{last_begun_, out.total - unsent_.size(), out.total};
  unsent_ = unsent_.subspan(bytes);
  ++out.in_flight;
  return stripe;
}

std::optional<Stripes::Sent> Stripes::on_sent(const Outgoing& stripe, std::size_t frame_bytes) {
  const auto found = outgoing_.find(stripe.stripe.value().number);
  HORO_CHECK(found != outgoing_.end());
  Outbound& out = found->second;
  out.frame_bytes += frame_bytes;
  if (--out.in_flight > 0 || (found->first == last_begun_ && has_unsent())) return std::nullopt;
  Sent whole{std::move(out.message), out.frame_bytes};
  outgoing_.erase(found);
  return whole;
}

std::uint64_t Stripes::number_of(const Frame& stripe) const {
  return stripe.kind == FrameKind::kStriped ? last_opened_ : stripe.key_hash;
}

std::optional<OpTable::Match> Stripes::place(const Frame& stripe, bool is_first_connection, const MatchMessage& match) {
  const bool is_first = stripe.kind == FrameKind::kStriped;
  if (is_first && !is_first_connection) throw ProtocolError("the first stripe of a message on another connection");
  check(stripe);
  if (is_first && !open(stripe, match)) return std::nullopt;
  return place_in_message(stripe);
}

void Stripes::check(const Frame& stripe) const {
  const bool is_first = stripe.kind == FrameKind::kStriped;
  if (stripe.length == 0 || (is_first && stripe.length >= stripe.offset)) {
    throw ProtocolError(say("a stripe of ", stripe.length, " bytes of a message of ", stripe.offset));
  }
  if (!is_first && stripe.key_hash <= last_opened_ && !incoming_.contains(stripe.key_hash)) {
    throw ProtocolError(say("a stripe of message ", stripe.key_hash, ", which has ended"));
  }
}

// False: an earlier message with this tag has no receive yet, or there is no room for the message.
bool Stripes::open(const Frame& first, const MatchMessage& match) {
  const Tag tag{first.channel, first.plan, first.segment, first.key_hash};
  if (is_early(tag)) return false;
  const OpTable::Match found = match(tag, first.offset);
  if (found.place == OpTable::Place::kRefused) return false;
  Inbound& in = incoming_[++last_opened_];
  in.message.tag = tag;
  in.message.match = found;
  in.total = first.offset;
  if (found.place != OpTable::Place::kEarly) return true;
  in.message.own.resize(in.total);
  in.message.match.memory = in.message.own;
  return true;
}

// Stripes that overlap would be longer than the message in sum, so no byte is written after its end.
std::optional<OpTable::Match> Stripes::place_in_message(const Frame& stripe) {
  const auto found = incoming_.find(number_of(stripe));
  if (found == incoming_.end()) return std::nullopt;
  Inbound& in = found->second;
  const std::uint64_t offset = stripe.kind == FrameKind::kStriped ? 0 : stripe.offset;
  if (offset > in.total || stripe.length > in.total - offset || stripe.length > in.total - in.placed) {
    throw ProtocolError(say("a stripe of ", stripe.length, " bytes at ", offset, " of a message of ", in.total));
  }
  if (stripe.channel != in.message.tag.channel || stripe.plan != in.message.tag.plan) {
    throw ProtocolError("a stripe with the tag of another message");
  }
  in.placed += stripe.length;
  OpTable::Match match = in.message.match;
  if (match.place != OpTable::Place::kDropped) match.memory = match.memory.subspan(offset, stripe.length);
  return match;
}

bool Stripes::is_early(const Tag& tag) const {
  return std::any_of(incoming_.begin(), incoming_.end(), [&](const auto& entry) {
    const ReceivedMessage& one = entry.second.message;
    return one.match.place == OpTable::Place::kEarly && one.tag.channel == tag.channel && one.tag.plan == tag.plan &&
           one.tag.segment == tag.segment;
  });
}

std::optional<ReceivedMessage> Stripes::on_received(const Frame& stripe, std::size_t frame_bytes) {
  const auto found = incoming_.find(number_of(stripe));
  if (found == incoming_.end()) return std::nullopt;
  Inbound& in = found->second;
  in.message.frame_bytes += frame_bytes;
  in.received += stripe.length;
  if (in.received < in.total) return std::nullopt;
  ReceivedMessage whole = std::move(in.message);
  incoming_.erase(found);
  return whole;
}

void Stripes::release(std::uint32_t channel, std::uint64_t plan) {
  const auto is_of_plan = [&](const Tag& tag) { return tag.channel == channel && tag.plan == plan; };
  for (auto& [number, in] : incoming_) {
    if (is_of_plan(in.message.tag) && in.message.match.place == OpTable::Place::kPosted) {
      in.message.match = {OpTable::Place::kDropped, 0, {}};
    }
  }
  if (!has_unsent()) return;
  Outbound& out = outgoing_.at(last_begun_);
  if (!is_of_plan(out.message.tag) || !out.copied.empty()) return;
  out.copied.assign(unsent_.begin(), unsent_.end());
  unsent_ = out.copied;
}

void Stripes::drop_all() noexcept {
  unsent_ = {};
  for (auto& [number, in] : incoming_) in.message.match = {OpTable::Place::kDropped, 0, {}};
}

}  // namespace horo
