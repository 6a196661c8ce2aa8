// A connection takes its next piece when the last one is in its socket, so a slow one takes fewer. Pieces are as long
// as one connection's share of the message, within limits: short enough that none is the last for long, long enough
// that their headers do not count.
#include "ring/transport/stripes.h"

#include <algorithm>
#include <utility>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/say.h"

namespace horo {

Outgoing Stripes::begin(const Outgoing& message) {
  HORO_CHECK(rest_.empty() && cuts(message));
  Outbound& out = outgoing_[++last_sent_];
  out.message = {message.op, message.tag, {}, {}};
  out.total = message.bytes.size();
  rest_ = message.bytes;
  return take_piece();
}

Outgoing Stripes::next() {
  HORO_CHECK(has_more());
  return take_piece();
}

Outgoing Stripes::take_piece() {
  Outbound& out = outgoing_.at(last_sent_);
  const std::size_t share = (out.total + width_ - 1) / width_;
  const std::size_t bytes = std::min(rest_.size(), std::clamp(share, kWholeBytes, kLongestBytes));
  // What was kept belongs to no operation any more.
  Outgoing piece{out.kept.empty() ? out.message.op : 0, out.message.tag, rest_.first(bytes), {}};
  piece.stripe = Stripe{last_sent_, out.total - rest_.size(), out.total};
  rest_ = rest_.subspan(bytes);
  ++out.under_way;
  return piece;
}

std::optional<Stripes::Sent> Stripes::sent(const Outgoing& piece, std::size_t frame_bytes) {
  const auto found = outgoing_.find(piece.stripe.value().number);
  HORO_CHECK(found != outgoing_.end());
  Outbound& out = found->second;
  out.frame_bytes += frame_bytes;
  if (--out.under_way > 0 || (found->first == last_sent_ && has_more())) return std::nullopt;
  Sent whole{std::move(out.message), out.frame_bytes};
  outgoing_.erase(found);
  return whole;
}

std::uint64_t Stripes::number_of(const Frame& piece) const {
  return piece.kind == FrameKind::kStriped ? last_opened_ : piece.key_hash;
}

void Stripes::check(const Frame& piece) const {
  const bool is_first = piece.kind == FrameKind::kStriped;
  if (piece.length == 0 || (is_first && piece.length >= piece.offset)) {
    throw ProtocolError(say("a piece of ", piece.length, " bytes of a message of ", piece.offset));
  }
  if (!is_first && piece.key_hash <= last_opened_ && !incoming_.contains(piece.key_hash)) {
    throw ProtocolError(say("a piece of message ", piece.key_hash, ", which has ended"));
  }
}

void Stripes::open(const Frame& first, const OpTable::Match& match) {
  Inbound& in = incoming_[++last_opened_];
  in.message.tag = {first.channel, first.plan, first.segment, first.key_hash};
  in.message.match = match;
  in.total = first.offset;
  if (match.place != OpTable::Place::kEarly) return;
  in.message.own.resize(in.total);
  in.message.match.memory = in.message.own;
}

// Pieces that overlap would be more than the whole, so nobody writes to a message after its end.
std::optional<OpTable::Match> Stripes::place(const Frame& piece) {
  const auto found = incoming_.find(number_of(piece));
  if (found == incoming_.end()) return std::nullopt;
  Inbound& in = found->second;
  const std::uint64_t offset = piece.kind == FrameKind::kStriped ? 0 : piece.offset;
  if (offset > in.total || piece.length > in.total - offset || piece.length > in.total - in.placed) {
    throw ProtocolError(say("a piece of ", piece.length, " bytes at ", offset, " of a message of ", in.total));
  }
  if (piece.channel != in.message.tag.channel || piece.plan != in.message.tag.plan) {
    throw ProtocolError("a piece with the tag of another message");
  }
  in.placed += piece.length;
  OpTable::Match match = in.message.match;
  if (match.place != OpTable::Place::kDropped) match.memory = match.memory.subspan(offset, piece.length);
  return match;
}

bool Stripes::is_early(const Tag& tag) const {
  return std::any_of(incoming_.begin(), incoming_.end(), [&](const auto& entry) {
    const Received& one = entry.second.message;
    return one.match.place == OpTable::Place::kEarly && one.tag.channel == tag.channel && one.tag.plan == tag.plan &&
           one.tag.segment == tag.segment;
  });
}

std::optional<Stripes::Received> Stripes::received(const Frame& piece, std::size_t frame_bytes) {
  const auto found = incoming_.find(number_of(piece));
  if (found == incoming_.end()) return std::nullopt;
  Inbound& in = found->second;
  in.message.frame_bytes += frame_bytes;
  in.got += piece.length;
  if (in.got < in.total) return std::nullopt;
  Received whole = std::move(in.message);
  incoming_.erase(found);
  return whole;
}

void Stripes::release(std::uint32_t channel, std::uint64_t plan) {
  const auto is_of_it = [&](const Tag& tag) { return tag.channel == channel && tag.plan == plan; };
  for (auto& [number, in] : incoming_) {
    if (is_of_it(in.message.tag) && in.message.match.place == OpTable::Place::kPosted) {
      in.message.match = {OpTable::Place::kDropped, 0, {}};
    }
  }
  if (!has_more()) return;
  Outbound& out = outgoing_.at(last_sent_);
  if (!is_of_it(out.message.tag) || !out.kept.empty()) return;
  out.kept.assign(rest_.begin(), rest_.end());
  rest_ = out.kept;
}

void Stripes::drop_all() noexcept {
  rest_ = {};
  for (auto& [number, in] : incoming_) in.message.match = {OpTable::Place::kDropped, 0, {}};
}

}  // namespace horo
