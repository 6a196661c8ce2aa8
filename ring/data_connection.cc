// Large payloads travel between the socket and the caller's memory without a copy of ours: header and payload leave in
// one gathering call, and a scattering call fills the rest of a payload first and the read-ahead buffer, where the next
// header will lie, second.

#include "ring/data_connection.h"

#include <algorithm>
#include <cstring>
#include <system_error>

#include "horo/base/error.h"
#include "ring/say.h"

namespace horo {
namespace {

constexpr std::size_t kWasteBytes = 64 << 10;
// Frames that are not tensors: abort reasons and cancellations are cut to about 4 KiB by their writers.
constexpr std::size_t kMaxNoticeBytes = 8 << 10;
constexpr std::size_t kMaxKeptBytes = 4 << 20;

}  // namespace

DataConnection::DataConnection(Connection connection, const Identity& self, std::size_t chunk_bytes)
    : stream_(connection.memory ? make_shm_stream(std::move(connection.fd), std::move(*connection.memory),
                                                  self.rank > connection.peer, chunk_bytes)
                                : make_socket_stream(std::move(connection.fd))),
      peer_(connection.peer),
      peer_incarnation_(connection.incarnation),
      self_(self),
      name_(say("rank ", self.rank, ": connection to ",
                connection.name.empty() ? say("rank ", connection.peer) : connection.name)) {}

void DataConnection::begin_send(Outgoing message) {
  Frame frame = self_.frame(FrameKind::kData);
  frame.channel = message.tag.channel;
  frame.plan = message.tag.plan;
  frame.key_hash = message.tag.key_hash;
  frame.segment = message.tag.segment;
  frame.length = message.op == 0 ? message.notice.size() : message.bytes.size();
  header_ = encode(frame);
  sending_ = std::move(message);
  if (sending_->op == 0) sending_->bytes = sending_->notice;
  sent_ = 0;
}

void DataConnection::begin_last(FrameKind kind, std::span<const std::byte> payload) {
  Frame frame = self_.frame(kind);
  frame.length = payload.size();
  const FrameBytes header = encode(frame);
  last_.insert(last_.end(), header.begin(), header.end());
  last_.insert(last_.end(), payload.begin(), payload.end());
}

bool DataConnection::write() {
  if (!can_send() || !has_unsent()) return false;
  if (!sending_ || sent_ == header_.size() + sending_->bytes.size()) return write_last();
  std::array<iovec, 2> parts;
  std::size_t used = 0;
  if (sent_ < header_.size()) parts[used++] = as_iovec(std::span(header_).subspan(sent_));
  const auto payload = sending_->bytes.subspan(sent_ < header_.size() ? 0 : sent_ - header_.size());
  if (!payload.empty()) parts[used++] = as_iovec(payload.first(std::min(payload.size(), kQuantumBytes)));
  const Moved moved = stream_->send(std::span(parts).first(used));
  broken_ = moved.ended;
  sent_ += moved.bytes;
  return moved.bytes > 0;
}

bool DataConnection::write_last() {
  std::array<iovec, 1> part{as_iovec(std::span(last_).subspan(last_sent_))};
  if (part[0].iov_len == 0) return false;
  const Moved moved = stream_->send(part);
  broken_ = moved.ended;
  last_sent_ += moved.bytes;
  return moved.bytes > 0;
}

std::optional<Outgoing> DataConnection::take_sent() {
  if (!sending_ || sent_ < header_.size() + sending_->bytes.size()) return std::nullopt;
  return std::exchange(sending_, std::nullopt);
}

pollfd DataConnection::before_sleep() noexcept {
  const short in = is_stalled() ? 0 : POLLIN;
  const short out = has_unsent() && can_send() ? POLLOUT : 0;
  return stream_->before_sleep(static_cast<short>(in | out));
}

std::span<std::byte> DataConnection::rest() const {
  if (state_ != State::kBody || dropping_) return {};
  return in_.match.memory.subspan(in_.got);
}

bool DataConnection::read() {
  if (closed_) return false;
  if (is_stalled()) {
    if (broken_) on_end(0);
    return false;
  }
  std::array<iovec, 2> parts;
  std::size_t used = 0;
  auto direct = rest();
  if (state_ == State::kBody && dropping_) {
    waste_.resize(kWasteBytes);
    direct = std::span(waste_).first(std::min<std::uint64_t>(kWasteBytes, in_.frame.length - in_.got));
  }
  direct = direct.first(std::min(direct.size(), kQuantumBytes));
  if (!direct.empty()) parts[used++] = as_iovec(direct);
  std::copy(ahead_.begin() + static_cast<std::ptrdiff_t>(ahead_begin_),
            ahead_.begin() + static_cast<std::ptrdiff_t>(ahead_end_), ahead_.begin());
  ahead_end_ -= std::exchange(ahead_begin_, 0);
  // Only behind the very end of a payload may the next header be read ahead.
  const bool ends_here = state_ != State::kBody || in_.frame.length - in_.got == direct.size();
  if (ends_here) parts[used++] = as_iovec(std::span(ahead_).subspan(ahead_end_));
  const Moved moved = stream_->receive(std::span(parts).first(used));
  if (moved.ended) on_end(moved.error);
  in_.got += std::min(moved.bytes, direct.size());
  ahead_end_ += moved.bytes - std::min(moved.bytes, direct.size());
  return moved.bytes > 0 || closed_;
}

void DataConnection::on_end(int error) {
  closed_ = true;
  if (has_left_) return;
  const std::string why = error == 0 ? "it closed the connection without a goodbye; did its process end?"
                                     : std::generic_category().message(error);
  throw PeerLost(peer_, say(name_, " was lost: ", why), Evidence::kBroken);
}

DataConnection::Arrival DataConnection::next() {
  switch (state_) {
    case State::kHeader:
      return next_header();
    case State::kUnplaced:
      return Arrival::kHeader;
    case State::kBody:
      return next_body();
  }
  return Arrival::kNothing;
}

DataConnection::Arrival DataConnection::next_header() {
  const auto ready = std::span(ahead_).subspan(ahead_begin_, ahead_end_ - ahead_begin_);
  if (ready.size() < kFrameBytes) return Arrival::kNothing;
  try {
    in_ = {};
    in_.frame = decode_frame(ready.first<kFrameBytes>(), UINT64_MAX);
    self_.expect_from(in_.frame, peer_, peer_incarnation_);
    const bool notice = in_.frame.kind != FrameKind::kData || in_.frame.segment == kCancelSegment;
    if (notice && in_.frame.length > kMaxNoticeBytes)
      throw ProtocolError(say("a notice of ", in_.frame.length, " bytes"));
  } catch (const ProtocolError& error) {
    throw PeerLost(peer_, say(name_, " was ended: ", error.what()));
  }
  ahead_begin_ += kFrameBytes;
  state_ = State::kUnplaced;
  return Arrival::kHeader;
}

DataConnection::Arrival DataConnection::next_body() {
  const std::uint64_t missing = in_.frame.length - in_.got;
  const std::size_t here = std::min<std::uint64_t>(missing, ahead_end_ - ahead_begin_);
  if (!dropping_ && here > 0) std::memcpy(rest().data(), ahead_.data() + ahead_begin_, here);
  ahead_begin_ += here;
  in_.got += here;
  return here == missing ? Arrival::kMessage : Arrival::kNothing;
}

void DataConnection::place(const OpTable::Match& match) {
  in_.match = match;
  dropping_ = match.place == OpTable::Place::kDropped;
  state_ = State::kBody;
  if (match.place == OpTable::Place::kEarly) place_own();
}

void DataConnection::place_own() {
  in_.own.resize(in_.frame.length);
  in_.match.place = OpTable::Place::kEarly;
  in_.match.memory = in_.own;
  dropping_ = false;
  state_ = State::kBody;
}

bool DataConnection::receives_for_op() const {
  return state_ == State::kBody && in_.match.place == OpTable::Place::kPosted;
}

void DataConnection::stop_receiving() {
  dropping_ = true;
  in_.match = {OpTable::Place::kDropped, 0, {}};
}

void DataConnection::keep_outgoing() {
  sending_->notice.assign(sending_->bytes.begin(), sending_->bytes.end());
  sending_->bytes = sending_->notice;
  sending_->op = 0;
}

void DataConnection::release(std::uint32_t channel, std::uint64_t plan) {
  if (receives_for_op() && in_.frame.channel == channel && in_.frame.plan == plan) stop_receiving();
  if (is_sending_op() && sending_->tag.channel == channel && sending_->tag.plan == plan) keep_outgoing();
}

void DataConnection::release_all() {
  if (receives_for_op()) stop_receiving();
  if (!is_sending_op()) return;
  if (sending_->bytes.size() <= kMaxKeptBytes) return keep_outgoing();
  drop_all();
}

void DataConnection::drop_all() noexcept {
  if (receives_for_op()) stop_receiving();
  if (!is_sending_op()) return;
  sending_.reset();
  broken_ = true;
}

}  // namespace horo
