// Header, body and checksum of a large frame leave in one gathering call, the body straight from the operation's
// memory.
#include "ring/transport/frame_writer.h"

#include <algorithm>
#include <utility>

#include "horo/base/crc32c.h"
#include "ring/transport/stripes.h"

namespace horo {
namespace {

constexpr std::size_t kMostCopiedBytes = 4 << 20;

}  // namespace

void FrameWriter::begin(Outgoing message, FrameKind kind) {
  Frame frame = self_.frame(kind);
  frame.channel = message.tag.channel;
  frame.plan = message.tag.plan;
  frame.key_hash = message.tag.key_hash;
  frame.segment = message.tag.segment;
  if (message.stripe) describe_stripe(*message.stripe, frame);
  sending_ = std::move(message);
  if (sending_->op == 0 && !sending_->stripe) sending_->bytes = sending_->notice;
  frame.length = sending_->bytes.size();
  frame.is_checked = checks_;
  const FrameBytes header = encode(frame);
  const auto header_end = std::copy(header.begin(), header.end(), front_.begin());
  front_bytes_ = kFrameBytes;
  sent_ = summed_ = 0;
  checksum_ = checks_ ? crc32c(header) : 0;
  if (frame.length > kSmallBytes) return;
  add_to_checksum(sending_->bytes.size());
  const auto body_end = std::copy(sending_->bytes.begin(), sending_->bytes.end(), header_end);
  if (checks_) std::copy(tail_.begin(), tail_.end(), body_end);
  front_bytes_ = end_of_frame();
}

// Called just before the bytes are sent, so that they are loaded into the cache once.
void FrameWriter::add_to_checksum(std::size_t end) {
  if (!checks_) return;
  checksum_ = crc32c(sending_->bytes.subspan(summed_, end - summed_), checksum_);
  summed_ = end;
  if (end == sending_->bytes.size()) tail_ = checksum_bytes(checksum_);
}

void FrameWriter::begin_last(FrameKind kind, std::span<const std::byte> payload) {
  Frame frame = self_.frame(kind);
  frame.is_checked = checks_;
  const auto message = message_of(frame, payload);
  last_.insert(last_.end(), message.begin(), message.end());
}

std::size_t FrameWriter::write() {
  if (is_broken_ || !has_unsent()) return 0;
  if (!sending_ || sent_ == end_of_frame()) return write_last();
  std::array<iovec, 3> parts;
  const std::size_t used = gather(parts);
  const Moved moved = stream_.send(std::span(parts).first(used));
  is_broken_ = moved.ended;
  sent_ += moved.bytes;
  all_sent_ += moved.bytes;
  return moved.bytes;
}

// The unsent rest of the front, at most a quantum of the body, and the tail if the body is complete with it.
std::size_t FrameWriter::gather(std::array<iovec, 3>& parts) {
  std::size_t used = 0;
  if (sent_ < front_bytes_) parts[used++] = as_iovec(std::span(front_).subspan(sent_, front_bytes_ - sent_));
  if (front_bytes_ == end_of_frame()) return used;
  const std::size_t body = sending_->bytes.size();
  const std::size_t begin = std::min(std::max(sent_, front_bytes_) - front_bytes_, body);
  const std::size_t end = std::min(begin + kQuantumBytes, body);
  if (end > summed_) add_to_checksum(end);
  if (end > begin) parts[used++] = as_iovec(sending_->bytes.subspan(begin, end - begin));
  const std::size_t of_tail = std::max(sent_, front_bytes_ + body) - front_bytes_ - body;
  if (checks_ && end == body) parts[used++] = as_iovec(std::span(tail_).subspan(of_tail));
  return used;
}

std::size_t FrameWriter::write_last() {
  std::array<iovec, 1> part{as_iovec(std::span(last_).subspan(last_sent_))};
  if (part[0].iov_len == 0) return 0;
  const Moved moved = stream_.send_last(part);
  is_broken_ = moved.ended;
  last_sent_ += moved.bytes;
  return moved.bytes;
}

std::optional<Outgoing> FrameWriter::take_sent() {
  if (sending_ && sent_ == end_of_frame()) {
    if (settling_.empty() && stream_.unsettled() == 0) return std::exchange(sending_, std::nullopt);
    settling_.push_back({all_sent_, std::move(*sending_)});
    sending_.reset();
  }
  if (settling_.empty() || settling_.front().end > all_sent_ - stream_.unsettled()) return std::nullopt;
  std::optional<Outgoing> settled = std::move(settling_.front().message);
  settling_.pop_front();
  return settled;
}

void FrameWriter::copy_rest() {
  sending_->notice.assign(sending_->bytes.begin(), sending_->bytes.end());
  sending_->bytes = sending_->notice;
  sending_->op = 0;
}

void FrameWriter::release(std::uint32_t channel, std::uint64_t plan) {
  if (is_sending_op() && sending_->tag.channel == channel && sending_->tag.plan == plan) copy_rest();
}

void FrameWriter::release_all() {
  if (!is_sending_op()) return;
  if (sending_->bytes.size() <= kMostCopiedBytes) return copy_rest();
  drop_all();
}

void FrameWriter::drop_all() noexcept {
  if (!is_sending_op()) return;
  sending_.reset();
  is_broken_ = true;
}

}  // namespace horo
