// A challenge and response in both directions (ISO/IEC 9798-4, three passes), and the acceptor's word that it keeps the
// connection. Each proof covers all bytes before it, under a label of its own, so a proof cannot be replayed, reflected
// or moved to another connection, rank or purpose; only the first hello, which comes before any challenge, can.
// The acceptor stores one hello of an unauthenticated peer at a time, at most kFrameBytes + kMaxHelloBytes bytes.

#include "ring/transport/handshake.h"

#include <cstring>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/say.h"

namespace horo {
namespace {

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

Mac read_mac(ByteReader& body) {
  Mac mac;
  const auto bytes = body.raw(mac.size());
  body.expect_end();
  std::memcpy(mac.data(), bytes.data(), mac.size());
  return mac;
}

void expect_mac(ByteReader& body, const Mac& mac) {
  if (!equal_macs(read_mac(body), mac))
    throw ProtocolError("the proof of the job key is wrong: the two sides hold different keys");
}

template <class Value>
void expect_equal(const char* field, Value theirs, Value ours) {
  if (theirs != ours) throw ProtocolError(say("hello with ", field, " ", theirs, ", expected ", ours));
}

}  // namespace

Frame Identity::frame(FrameKind kind) const {
  Frame frame;
  frame.kind = kind;
  frame.job = job;
  frame.epoch = epoch;
  frame.incarnation = incarnation;
  frame.from = static_cast<std::uint32_t>(rank);
  return frame;
}

void Identity::expect_from(const Frame& frame, int peer, std::uint32_t peer_incarnation) const {
  if (frame.job == job && frame.epoch == epoch && frame.incarnation == peer_incarnation &&
      frame.from == static_cast<std::uint32_t>(peer)) {
    return;
  }
  throw ProtocolError(say("a frame of job ", frame.job, ", epoch ", frame.epoch, ", rank ", frame.from,
                          ", incarnation ", frame.incarnation, " where job ", job, ", epoch ", epoch, ", rank ", peer,
                          ", incarnation ", peer_incarnation, " was expected"));
}

AbortNotice Identity::notice_in(std::span<const std::byte> payload) const {
  AbortNotice notice = decode_abort(payload);
  if (notice.origin < size) return notice;
  throw ProtocolError(say("a notice about rank ", notice.origin, ", expected one below ", size));
}

Identity identity_of(const Config& config, std::uint32_t epoch) {
  return {hash64(config.job), epoch, config.incarnation, config.rank, config.size, config.key.value_or(JobKey{})};
}

Handshake::Handshake(const Identity& self, int peer, Purpose purpose, int number)
    : self_(self), dials_(peer != kUnknown), peer_(peer), purpose_(purpose), number_(number) {
  if (!dials_) return;
  ByteWriter body;
  body.u8(static_cast<std::uint8_t>(purpose));
  body.u8(static_cast<std::uint8_t>(number));
  body.u32(static_cast<std::uint32_t>(peer));
  body.u32(static_cast<std::uint32_t>(self.size));
  body.raw(make_nonce());
  append(transcript_, encode(hello_of(body.bytes().size() + sizeof(Mac))));
  append(transcript_, body.bytes());
  append(transcript_, mac("horo call"));
  output_ = transcript_;
}

Frame Handshake::hello_of(std::size_t payload_bytes) const {
  Frame frame = self_.frame(FrameKind::kHello);
  frame.length = payload_bytes;
  return frame;
}

void Handshake::send(const Mac& proof) {
  const FrameBytes header = encode(hello_of(proof.size()));
  for (auto* to : {&output_, &transcript_}) {
    append(*to, header);
    append(*to, proof);
  }
}

void Handshake::feed(std::span<const std::byte> bytes) {
  if (bytes.size() != wants_) throw ProtocolError("a hello of another length");
  if (state_ == State::kBody) {
    state_ = State::kHeader;
    wants_ = kFrameBytes;
    return on_hello(bytes);
  }
  header_ = decode_frame(bytes.first<kFrameBytes>(), kMaxHelloBytes);
  if (header_.kind != FrameKind::kHello || header_.length == 0) throw ProtocolError("expected a hello");
  if (header_.channel != 0 || header_.plan != 0 || header_.key_hash != 0 || header_.segment != 0 ||
      header_.offset != 0 || header_.is_checked) {
    throw ProtocolError("hello with fields of a data frame");
  }
  expect_equal("job", header_.job, self_.job);
  expect_equal("epoch", header_.epoch, self_.epoch);
  if (header_.from >= static_cast<std::uint32_t>(self_.size) ||
      header_.from == static_cast<std::uint32_t>(self_.rank)) {
    throw ProtocolError(say("hello from rank ", header_.from, ", expected another rank below ", self_.size));
  }
  const bool first = received_ == 0;
  if (!first || dials_) expect_equal("rank", header_.from, static_cast<std::uint32_t>(peer_));
  if (!first) expect_equal("incarnation", header_.incarnation, peer_incarnation_);
  state_ = State::kBody;
  wants_ = static_cast<std::size_t>(header_.length);
}

void Handshake::on_hello(std::span<const std::byte> payload) {
  ByteReader body(payload);
  peer_ = static_cast<int>(header_.from);
  peer_incarnation_ = header_.incarnation;
  ++received_;
  if (dials_) return received_ == 1 ? on_second(body) : on_fourth(body);
  return received_ == 1 ? on_first(body, payload) : on_third(body, payload);
}

void Handshake::on_first(ByteReader& body, std::span<const std::byte> payload) {
  const std::uint8_t purpose = body.u8();
  if (purpose < 1 || purpose > 3) throw ProtocolError(say("hello with purpose ", int{purpose}));
  purpose_ = static_cast<Purpose>(purpose);
  number_ = body.u8();
  expect_equal("receiver", body.u32(), static_cast<std::uint32_t>(self_.rank));
  expect_equal("world size", body.u32(), static_cast<std::uint32_t>(self_.size));
  body.raw(sizeof(Nonce));
  append(transcript_, encode(header_));
  append(transcript_, payload.first(payload.size() - body.left()));
  call_ = read_mac(body);
  is_called_ = equal_macs(call_, mac("horo call"));
  append(transcript_, call_);
  // The proof is in the same hello as the nonce, so it covers that hello up to the proof.
  const std::size_t begin = transcript_.size();
  append(transcript_, encode(hello_of(sizeof(Nonce) + sizeof(Mac))));
  append(transcript_, make_nonce());
  append(transcript_, mac("horo accept"));
  append(output_, std::span(transcript_).subspan(begin));
}

void Handshake::on_second(ByteReader& body) {
  append(transcript_, encode(header_));
  append(transcript_, body.raw(sizeof(Nonce)));
  const Mac theirs = mac("horo accept");
  expect_mac(body, theirs);
  append(transcript_, theirs);
  send(mac("horo dial"));
}

void Handshake::on_third(ByteReader& body, std::span<const std::byte> payload) {
  expect_mac(body, mac("horo dial"));
  append(transcript_, encode(header_));
  append(transcript_, payload);
  state_ = State::kProved;
  wants_ = 0;
}

void Handshake::on_fourth(ByteReader& body) {
  expect_mac(body, mac("horo admit"));
  state_ = State::kDone;
  wants_ = 0;
}

void Handshake::admit() {
  HORO_CHECK(is_proved());
  send(mac("horo admit"));
  state_ = State::kDone;
}

Mac Handshake::mac(const char* label) const {
  std::vector<std::byte> text;
  append(text, std::as_bytes(std::span(label, std::strlen(label))));
  append(text, transcript_);
  return hmac_sha256(self_.key, text);
}

}  // namespace horo
