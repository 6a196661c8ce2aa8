// The rest of a large payload is received into the operation's memory without a copy. A scattering call fills it first
// and the read-ahead buffer, in which the checksum and the next header will lie, second.
//
// A message of 16 KiB or more whose receive is posted takes one call with its header instead of two, which saves 1 us:
// its payload is received into the memory of the expected receive, and copied from there if the header shows another
// message. The expected receive is the oldest posted one; the lowest tag would be wrong for every second message of 1
// MiB and cost 15 %.
#include "ring/transport/frame_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "horo/base/crc32c.h"
#include "horo/base/error.h"
#include "horo/base/say.h"
#include "ring/transport/frame_writer.h"
#include "ring/transport/stripes.h"

namespace horo {
namespace {

constexpr std::size_t kWasteBytes = 64 << 10;
// The writers of notices cut reasons to about 4 KiB.
constexpr std::size_t kMostNoticeBytes = 8 << 10;
// After a wrong guess the reader guesses again when this many guesses in a row would have been right.
constexpr int kTrust = 8;

bool is_expected(const Frame& frame, const OpTable::Expected& expected) {
  return frame.kind == FrameKind::kData && frame.channel == expected.tag.channel && frame.plan == expected.tag.plan &&
         frame.segment == expected.tag.segment && frame.key_hash == expected.tag.key_hash &&
         frame.length == expected.memory.size();
}

}  // namespace

bool is_notice(const Frame& frame) {
  return !is_stripe(frame) && (frame.kind != FrameKind::kData || frame.segment == kCancelSegment);
}

FrameReader::FrameReader(const Identity& self, Stream& stream, int peer, std::uint32_t peer_incarnation)
    : self_(self),
      stream_(stream),
      peer_(peer),
      peer_incarnation_(peer_incarnation),
      ahead_(kAheadBytes),
      right_guesses_(kTrust) {}

bool FrameReader::read(const std::optional<Expected>& expected) {
  move_ahead_to_front();
  if (state_ == State::kBody) return read_body();
  if (end_ > 0 || !expected || expected->memory.size() <= kAheadBytes) return read_headers();
  expected_ = expected;
  return right_guesses_ >= kTrust ? read_expected() : read_headers();
}

void FrameReader::move_ahead_to_front() {
  if (begin_ == 0) return;
  std::memmove(ahead_.data(), ahead_.data() + begin_, end_ - begin_);
  end_ -= std::exchange(begin_, 0);
}

bool FrameReader::receive(std::span<iovec> parts, std::size_t& bytes) {
  const Moved moved = stream_.receive(parts);
  bytes = moved.bytes;
  if (moved.ended) {
    is_closed_ = true;
    error_ = moved.error;
  }
  return moved.bytes > 0 || is_closed_;
}

bool FrameReader::read_headers() {
  std::array<iovec, 1> parts{as_iovec(std::span(ahead_).first(kAheadBytes).subspan(end_))};
  std::size_t bytes = 0;
  const bool is_new = receive(parts, bytes);
  end_ += bytes;
  return is_new;
}

// The memory that the payload goes to next, at most a quantum.
std::span<std::byte> FrameReader::rest_of_body() {
  std::span<std::byte> rest;
  if (is_dropping_) {
    waste_.resize(kWasteBytes);
    rest = std::span(waste_).first(std::min<std::uint64_t>(kWasteBytes, in_.frame.length - in_.got));
  } else {
    rest = in_.match.memory.subspan(in_.got);
  }
  return rest.first(std::min(rest.size(), FrameWriter::kQuantumBytes));
}

bool FrameReader::read_body() {
  const std::span<std::byte> direct = rest_of_body();
  std::array<iovec, 2> parts;
  std::size_t used = 0, bytes = 0;
  if (!direct.empty()) parts[used++] = as_iovec(direct);
  // Only behind the last byte of the payload can the checksum and the next header follow.
  const bool ends_here = in_.frame.length - in_.got == direct.size();
  if (ends_here) parts[used++] = as_iovec(std::span(ahead_).first(kAheadBytes).subspan(end_));
  const bool is_new = receive(std::span(parts).first(used), bytes);
  const std::size_t got = std::min(bytes, direct.size());
  add_to_checksum(direct.first(got));
  in_.got += got;
  end_ += bytes - got;
  return is_new;
}

// The header goes to the read-ahead buffer, the bytes behind it to the expected memory, and the rest behind the header.
bool FrameReader::read_expected() {
  const auto memory = expected_->memory.first(std::min(expected_->memory.size(), FrameWriter::kQuantumBytes));
  const auto buffer = std::span(ahead_).first(kAheadBytes);
  std::array<iovec, 3> parts{as_iovec(buffer.first(kFrameBytes)), as_iovec(memory),
                             as_iovec(buffer.subspan(kFrameBytes))};
  const bool ends_here = memory.size() == expected_->memory.size();
  std::size_t bytes = 0;
  const bool is_new = receive(std::span(parts).first(ends_here ? 3 : 2), bytes);
  const std::size_t header = std::min(bytes, kFrameBytes);
  guessed_ = std::min(bytes - header, memory.size());
  end_ = bytes - guessed_;
  return is_new;
}

// The header is known. If the guess was wrong, the guessed bytes move to where they would be without a guess.
void FrameReader::settle_expected() {
  if (!expected_) return;
  const bool is_right = is_expected(in_.frame, *expected_);
  right_guesses_ = is_right ? std::min(right_guesses_ + 1, kTrust) : 0;
  const auto guessed = expected_->memory.first(std::exchange(guessed_, 0));
  expected_.reset();
  if (guessed.empty()) return;
  if (is_right) {
    in_.got = guessed.size();
    return add_to_checksum(guessed);
  }
  ahead_.insert(ahead_.begin() + static_cast<std::ptrdiff_t>(begin_), guessed.begin(), guessed.end());
  end_ += guessed.size();
}

FrameReader::Arrival FrameReader::next() {
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

FrameReader::Arrival FrameReader::next_header() {
  const auto ready = ahead();
  if (ready.size() < kFrameBytes) return Arrival::kNothing;
  in_ = {};
  in_.frame = decode_frame(ready.first<kFrameBytes>(), UINT64_MAX);
  if (in_.frame.is_checked) checksum_ = crc32c(ready.first<kFrameBytes>());
  self_.expect_from(in_.frame, peer_, peer_incarnation_);
  if (is_notice(in_.frame) && in_.frame.length > kMostNoticeBytes) {
    throw ProtocolError(say("a notice of ", in_.frame.length, " bytes"));
  }
  begin_ += kFrameBytes;
  settle_expected();
  state_ = State::kUnplaced;
  return Arrival::kHeader;
}

FrameReader::Arrival FrameReader::next_body() {
  const std::uint64_t missing = in_.frame.length - in_.got;
  const auto here = ahead().first(std::min<std::uint64_t>(missing, end_ - begin_));
  add_to_checksum(here);
  if (!is_dropping_ && !here.empty()) std::memcpy(in_.match.memory.data() + in_.got, here.data(), here.size());
  begin_ += here.size();
  in_.got += here.size();
  if (here.size() < missing) return Arrival::kNothing;
  if (!in_.frame.is_checked) return Arrival::kMessage;
  if (end_ - begin_ < kChecksumBytes) return Arrival::kNothing;
  expect_checksum(ahead().first<kChecksumBytes>(), checksum_);
  begin_ += kChecksumBytes;
  return Arrival::kMessage;
}

void FrameReader::add_to_checksum(std::span<const std::byte> bytes) {
  if (in_.frame.is_checked) checksum_ = crc32c(bytes, checksum_);
}

void FrameReader::place(const OpTable::Match& match) {
  in_.match = match;
  is_dropping_ = match.place == OpTable::Place::kDropped;
  state_ = State::kBody;
  if (match.place == OpTable::Place::kEarly && match.memory.size() != in_.frame.length) place_own();
}

void FrameReader::place_own() {
  in_.own.resize(in_.frame.length);
  in_.match.place = OpTable::Place::kEarly;
  in_.match.memory = in_.own;
  is_dropping_ = false;
  state_ = State::kBody;
}

void FrameReader::release(std::uint32_t channel, std::uint64_t plan) {
  if (in_.frame.channel == channel && in_.frame.plan == plan) release_all();
}

void FrameReader::release_all() noexcept {
  if (!receives_for_op()) return;
  is_dropping_ = true;
  in_.match = {OpTable::Place::kDropped, 0, {}};
}

}  // namespace horo
