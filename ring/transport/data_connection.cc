// Large payloads travel between the socket and the caller's memory without a copy of ours: header and payload leave in
// one gathering call, and a scattering call fills the rest of a payload first and the read-ahead buffer, where the next
// header will lie, second.

#include "ring/transport/data_connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "horo/base/crc32c.h"
#include "horo/base/error.h"
#include "horo/base/say.h"

namespace horo {
namespace {

constexpr std::size_t kWasteBytes = 64 << 10;
// Frames that are not tensors: abort reasons and cancellations are cut to about 4 KiB by their writers.
constexpr std::size_t kMaxNoticeBytes = 8 << 10;
constexpr std::size_t kMaxKeptBytes = 4 << 20;
constexpr int kTrust = 8;  // right guesses that make up for a wrong one

std::unique_ptr<Stream> stream_of(Connection connection, bool is_maker, std::size_t chunk_bytes) {
  if (connection.mpi) return make_mpi_stream(std::move(connection.fd), connection.mpi, connection.peer);
  if (!connection.memory) return make_socket_stream(std::move(connection.fd));
  return make_shm_stream(std::move(connection.fd), std::move(*connection.memory), is_maker, chunk_bytes);
}

std::string name_of_link(const Connection& connection, int rank) {
  const std::string peer = connection.name.empty() ? say("rank ", connection.peer) : connection.name;
  if (connection.width == 1) return say("rank ", rank, ": connection to ", peer);
  return say("rank ", rank, ": connection ", connection.number + 1, " of ", connection.width, " to ", peer);
}

// Of a piece of a message that goes over several connections.
void describe_piece(const Stripe& stripe, Frame& frame) {
  const bool is_first = stripe.offset == 0;
  frame.kind = is_first ? FrameKind::kStriped : FrameKind::kStripe;
  frame.offset = is_first ? stripe.total : stripe.offset;
  if (!is_first) frame.key_hash = stripe.number;
}

}  // namespace

DataConnection::DataConnection(Connection connection, const Identity& self, std::size_t chunk_bytes)
    : peer_(connection.peer),
      number_(connection.number),
      peer_incarnation_(connection.incarnation),
      self_(self),
      name_(name_of_link(connection, self.rank)),
      checks_(connection.checks),
      stream_(stream_of(std::move(connection), self.rank > peer_, chunk_bytes)),
      ahead_(kAheadBytes),
      right_guesses_(kTrust) {}

void DataConnection::begin(Outgoing message, FrameKind kind) {
  Frame frame = self_.frame(kind);
  frame.channel = message.tag.channel;
  frame.plan = message.tag.plan;
  frame.key_hash = message.tag.key_hash;
  frame.segment = message.tag.segment;
  if (message.stripe) describe_piece(*message.stripe, frame);
  sending_ = std::move(message);
  if (sending_->op == 0 && !sending_->stripe) sending_->bytes = sending_->notice;
  frame.length = sending_->bytes.size();
  frame.is_checked = checks_;
  const FrameBytes header = encode(frame);
  const auto header_end = std::copy(header.begin(), header.end(), front_.begin());
  front_bytes_ = kFrameBytes;
  sent_ = summed_ = 0;
  out_sum_ = checks_ ? crc32c(header) : 0;
  if (frame.length > kSmallBytes) return;
  sum_outgoing(sending_->bytes.size());
  const auto body_end = std::copy(sending_->bytes.begin(), sending_->bytes.end(), header_end);
  if (checks_) std::copy(tail_.begin(), tail_.end(), body_end);
  front_bytes_ = end_of_sending();
}

// Just before they are sent: so they come from memory once.
void DataConnection::sum_outgoing(std::size_t end) {
  if (!checks_) return;
  out_sum_ = crc32c(sending_->bytes.subspan(summed_, end - summed_), out_sum_);
  summed_ = end;
  if (end == sending_->bytes.size()) tail_ = checksum_bytes(out_sum_);
}

void DataConnection::begin_last(FrameKind kind, std::span<const std::byte> payload) {
  Frame frame = self_.frame(kind);
  frame.is_checked = checks_;
  const auto message = message_of(frame, payload);
  last_.insert(last_.end(), message.begin(), message.end());
}

std::size_t DataConnection::write() {
  if (!can_send() || !has_unsent()) return 0;
  if (!sending_ || sent_ == end_of_sending()) return write_last();
  std::array<iovec, 3> parts;
  std::size_t used = 0;
  if (sent_ < front_bytes_) parts[used++] = as_iovec(std::span(front_).subspan(sent_, front_bytes_ - sent_));
  if (front_bytes_ < end_of_sending()) {
    const std::size_t body = sending_->bytes.size();
    const std::size_t begin = std::min(std::max(sent_, front_bytes_) - front_bytes_, body);
    const std::size_t end = std::min(begin + kQuantumBytes, body);
    if (end > summed_) sum_outgoing(end);
    if (end > begin) parts[used++] = as_iovec(sending_->bytes.subspan(begin, end - begin));
    const std::size_t of_tail = std::max(sent_, front_bytes_ + body) - front_bytes_ - body;
    if (checks_ && end == body) parts[used++] = as_iovec(std::span(tail_).subspan(of_tail));
  }
  const Moved moved = stream_->send(std::span(parts).first(used));
  broken_ = moved.ended;
  sent_ += moved.bytes;
  all_sent_ += moved.bytes;
  return moved.bytes;
}

std::size_t DataConnection::write_last() {
  std::array<iovec, 1> part{as_iovec(std::span(last_).subspan(last_sent_))};
  if (part[0].iov_len == 0) return 0;
  const Moved moved = stream_->send_last(part);
  broken_ = moved.ended;
  last_sent_ += moved.bytes;
  return moved.bytes;
}

std::optional<Outgoing> DataConnection::take_sent() {
  if (sending_ && sent_ == end_of_sending()) {
    if (settling_.empty() && stream_->unsettled() == 0) return std::exchange(sending_, std::nullopt);
    settling_.push_back({all_sent_, std::move(*sending_)});
    sending_.reset();
  }
  if (settling_.empty() || settling_.front().end > all_sent_ - stream_->unsettled()) return std::nullopt;
  std::optional<Outgoing> settled = std::move(settling_.front().message);
  settling_.pop_front();
  return settled;
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

bool DataConnection::read(const std::optional<Expected>& expected) {
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
  if (ahead_begin_ > 0) {
    std::copy(ahead_.begin() + static_cast<std::ptrdiff_t>(ahead_begin_),
              ahead_.begin() + static_cast<std::ptrdiff_t>(ahead_end_), ahead_.begin());
    ahead_end_ -= std::exchange(ahead_begin_, 0);
  }
  if (state_ == State::kHeader && ahead_end_ == 0 && expected && expected->memory.size() > kAheadBytes) {
    expected_ = expected;
    if (right_guesses_ >= kTrust) return read_expected();
  }
  // Only behind the very end of a payload may its checksum and the next header be read ahead.
  const bool ends_here = state_ != State::kBody || in_.frame.length - in_.got == direct.size();
  if (ends_here) parts[used++] = as_iovec(std::span(ahead_).first(kAheadBytes).subspan(ahead_end_));
  const Moved moved = stream_->receive(std::span(parts).first(used));
  if (moved.ended) on_end(moved.error);
  const std::size_t got = std::min(moved.bytes, direct.size());
  sum_incoming(direct.first(got));
  in_.got += got;
  ahead_end_ += moved.bytes - got;
  return moved.bytes > 0 || closed_;
}

// The header into the read-ahead buffer, what follows it into the expected memory, and the rest behind the header.
bool DataConnection::read_expected() {
  const auto memory = expected_->memory.first(std::min(expected_->memory.size(), kQuantumBytes));
  const auto ahead = std::span(ahead_).first(kAheadBytes);
  std::array<iovec, 3> parts{as_iovec(ahead.first(kFrameBytes)), as_iovec(memory),
                             as_iovec(ahead.subspan(kFrameBytes))};
  const bool ends_here = memory.size() == expected_->memory.size();
  const Moved moved = stream_->receive(std::span(parts).first(ends_here ? 3 : 2));
  if (moved.ended) on_end(moved.error);
  const std::size_t header = std::min(moved.bytes, kFrameBytes);
  guessed_ = std::min(moved.bytes - header, memory.size());
  ahead_end_ = moved.bytes - guessed_;
  return moved.bytes > 0 || closed_;
}

// The header is known. Bytes of another message than the expected one go where they would have come without a guess.
void DataConnection::settle_expected() {
  if (!expected_) return;
  const Tag& tag = expected_->tag;
  const Frame& frame = in_.frame;
  const bool is_right = frame.kind == FrameKind::kData && frame.channel == tag.channel && frame.plan == tag.plan &&
                        frame.segment == tag.segment && frame.key_hash == tag.key_hash &&
                        frame.length == expected_->memory.size();
  right_guesses_ = is_right ? std::min(right_guesses_ + 1, kTrust) : 0;
  const auto guessed = expected_->memory.first(std::exchange(guessed_, 0));
  expected_.reset();
  if (guessed.empty()) return;
  if (is_right) {
    in_.got = guessed.size();
    return sum_incoming(guessed);
  }
  const auto behind_header = ahead_.begin() + static_cast<std::ptrdiff_t>(ahead_begin_);
  ahead_.insert(behind_header, guessed.begin(), guessed.end());
  ahead_end_ += guessed.size();
}

void DataConnection::on_end(int error) {
  closed_ = true;
  if (has_left_) return;
  std::string why = std::generic_category().message(error);
  if (error == 0) why = "it closed the connection without a goodbye; did its process end?";
  if (error == ETIMEDOUT) why = "it acknowledged nothing within HORO_DEADLINE_MS; does its host run, and the network?";
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
    if (in_.frame.is_checked) in_sum_ = crc32c(ready.first<kFrameBytes>());
    self_.expect_from(in_.frame, peer_, peer_incarnation_);
    const bool notice =
        !is_piece(in_.frame) && (in_.frame.kind != FrameKind::kData || in_.frame.segment == kCancelSegment);
    if (notice && in_.frame.length > kMaxNoticeBytes)
      throw ProtocolError(say("a notice of ", in_.frame.length, " bytes"));
  } catch (const ProtocolError& error) {
    throw PeerLost(peer_, say(name_, " was ended: ", error.what()));
  }
  ahead_begin_ += kFrameBytes;
  settle_expected();
  state_ = State::kUnplaced;
  return Arrival::kHeader;
}

DataConnection::Arrival DataConnection::next_body() {
  const std::uint64_t missing = in_.frame.length - in_.got;
  const std::size_t here = std::min<std::uint64_t>(missing, ahead_end_ - ahead_begin_);
  sum_incoming(std::span(ahead_).subspan(ahead_begin_, here));
  if (!dropping_ && here > 0) std::memcpy(rest().data(), ahead_.data() + ahead_begin_, here);
  ahead_begin_ += here;
  in_.got += here;
  if (here < missing) return Arrival::kNothing;
  if (!in_.frame.is_checked) return Arrival::kMessage;
  if (ahead_end_ - ahead_begin_ < kChecksumBytes) return Arrival::kNothing;
  try {
    expect_checksum(std::span(ahead_).subspan(ahead_begin_).first<kChecksumBytes>(), in_sum_);
  } catch (const ProtocolError& error) {
    throw PeerLost(peer_, say(name_, " was ended: ", error.what()));
  }
  ahead_begin_ += kChecksumBytes;
  return Arrival::kMessage;
}

void DataConnection::sum_incoming(std::span<const std::byte> bytes) {
  if (in_.frame.is_checked) in_sum_ = crc32c(bytes, in_sum_);
}

void DataConnection::place(const OpTable::Match& match) {
  in_.match = match;
  dropping_ = match.place == OpTable::Place::kDropped;
  state_ = State::kBody;
  if (match.place == OpTable::Place::kEarly && match.memory.size() != in_.frame.length) place_own();
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
