// The control link over streams. wait() sleeps in poll() until a peer sends or closes, or wake() is called; it has no
// timeout of its own, so an idle engine uses no CPU time. Where all peers share memory with this rank, a poll needs no
// system call; the kernel is then polled every kWaitSlice. The engine thread alone reads. The outbox writes, because
// any thread may call abort(); an abort notice overtakes all messages of which no byte was written.

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <list>
#include <new>
#include <stdexcept>
#include <system_error>

#include "horo/base/check.h"
#include "horo/base/crc32c.h"
#include "horo/base/error.h"
#include "horo/base/log.h"
#include "horo/base/say.h"
#include "ring/control/control_inbound.h"
#include "ring/control/control_outbox.h"
#include "ring/os/waiting.h"
#include "ring/transport/factories.h"

namespace horo {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kReadBytes = 64 << 10;
constexpr milliseconds kAbortPatience{100};
constexpr milliseconds kLongestSleep{60'000};

class StreamControl final : public ControlLink {
 public:
  StreamControl(const Config& config, const Identity& self, std::vector<Connection> connections,
                std::vector<Watched> watched);
  ~StreamControl() override { drain(peers_, buffer_); }

  void send(int to, Bytes bytes) override;
  void beat(bool wants_answer) override;
  void suspect(int about, Evidence evidence, const std::string& reason) override;
  void watch(int fd) override { bell_ = fd; }
  Duration way_to(int rank) const override;
  std::vector<ControlEvent> wait(TimePoint until) override;
  void wake() noexcept override;
  void abort(int origin, const std::string& reason) noexcept override;
  void goodbye(Duration patience) noexcept override;

 private:
  Bytes frame(FrameKind kind, std::span<const std::byte> payload, std::uint32_t segment = 0) const;
  std::size_t index_of(int rank) const;
  bool poll_memory();
  milliseconds longest_poll(TimePoint until) const;
  bool poll_peers(TimePoint until);
  void on_process_end(int rank);
  void read_from(ControlInbound& peer);
  void add_beat(int rank);
  void parse(ControlInbound& peer);
  void on_frame(ControlInbound& peer, const Frame& frame, std::span<const std::byte> payload);
  void on_suspicion(const ControlInbound& peer, const Frame& frame, std::span<const std::byte> payload);
  void on_end(ControlInbound& peer, const std::string& why);
  std::string ended_text(const ControlInbound& peer) const;
  std::string broken_text(const ControlInbound& peer, const std::string& why) const;
  void lose(int origin, const std::string& reason, int reported_by);
  void check_queues();

  const Config config_;
  const Identity self_;
  // wake() was called. wake() stores it before it loads sleeps_; poll_peers() loads it after storing sleeps_. So at
  // least one of the two sees the other's store.
  std::atomic<bool> is_woken_ = false;
  std::atomic<bool> sleeps_ = false;
  Wakeup wakeup_;
  BriefWait brief_wait_;
  bool is_busy_ = false;       // the last wait() returned events
  bool is_all_memory_ = true;  // all peers share memory with this rank
  TimePoint polled_at_{};
  std::vector<ControlInbound> peers_;
  std::vector<pollfd> polls_;
  std::vector<Watched> watched_;
  int bell_ = -1;  // of watch()
  std::vector<ControlEvent> events_;
  bool lost_ = false;
  std::vector<std::byte> buffer_;
  ControlOutbox out_;                       // in the order of peers_
  std::vector<std::list<Bytes>> goodbyes_;  // by peer: the goodbye, made in advance
  std::vector<pollfd> farewell_polls_;      // with room for all peers, made in advance
};

StreamControl::StreamControl(const Config& config, const Identity& self, std::vector<Connection> connections,
                             std::vector<Watched> watched)
    : config_(config),
      self_(self),
      peers_(make_inbound(self, std::move(connections))),
      watched_(std::move(watched)),
      buffer_(kReadBytes),
      out_(streams_of(peers_)) {
  for (const ControlInbound& peer : peers_) {
    is_all_memory_ = is_all_memory_ && peer.stream->is_memory();
    goodbyes_.push_back({frame(FrameKind::kGoodbye, {})});
  }
  farewell_polls_.reserve(peers_.size());
}

Bytes StreamControl::frame(FrameKind kind, std::span<const std::byte> payload, std::uint32_t segment) const {
  Frame frame = self_.frame(kind);
  frame.segment = segment;
  frame.is_checked = true;  // the cost does not matter for small messages
  return message_of(frame, payload);
}

std::size_t StreamControl::index_of(int rank) const {
  const auto found =
      std::find_if(peers_.begin(), peers_.end(), [&](const ControlInbound& one) { return one.rank == rank; });
  HORO_CHECK(found != peers_.end());
  return static_cast<std::size_t>(found - peers_.begin());
}

Duration StreamControl::way_to(int rank) const {
  const Stream& stream = *peers_[index_of(rank)].stream;
  return stream.is_memory() ? Duration::zero() : smallest_round_trip(stream.socket()) / 2;
}

void StreamControl::send(int to, Bytes bytes) {
  if (bytes.size() > config_.max_message_bytes) {
    throw std::invalid_argument(say("a control message of ", bytes.size(), " bytes, at most ",
                                    config_.max_message_bytes, " are allowed (HORO_MAX_MESSAGE_BYTES)"));
  }
  out_.put(index_of(to), frame(FrameKind::kControl, bytes));
  out_.flush(Clock::now());
}

void StreamControl::beat(bool wants_answer) {
  const Bytes bytes = frame(FrameKind::kBeat, {}, wants_answer ? 1 : 0);
  for (std::size_t at = 0; at < peers_.size(); ++at) out_.put(at, bytes);
  out_.flush(Clock::now());
}

void StreamControl::suspect(int about, Evidence evidence, const std::string& reason) {
  out_.put(index_of(0),
           frame(FrameKind::kSuspicion, encode(AbortNotice{about, reason}), static_cast<std::uint32_t>(evidence)));
  out_.flush(Clock::now());
}

std::vector<ControlEvent> StreamControl::wait(TimePoint until) {
  while (true) {
    out_.flush(Clock::now());
    check_queues();
    bool woken = false;
    const bool is_found = is_busy_ && brief_wait_.poll([&] {
      woken = poll_memory();
      return woken || !events_.empty() || Clock::now() >= until;
    });
    if (!is_found) woken = poll_peers(events_.empty() ? until : TimePoint::min());
    is_busy_ = woken || !events_.empty();
    if (is_busy_ || Clock::now() >= until) {
      out_.flush(Clock::now());  // the events may have queued notices and answers
      return std::exchange(events_, {});
    }
  }
}

void StreamControl::wake() noexcept {
  if (!is_woken_.exchange(true) && sleeps_) wakeup_.wake();
}

// Does not sleep. True if wake() was called.
bool StreamControl::poll_memory() {
  if (!is_all_memory_ || Clock::now() - polled_at_ >= kWaitSlice) return poll_peers(TimePoint::min());
  for (ControlInbound& peer : peers_) read_from(peer);
  return is_woken_.load(std::memory_order_relaxed) && is_woken_.exchange(false);
}

// How long poll() may sleep. Room in shared memory wakes no sleeper here, so unsent bytes limit the sleep.
milliseconds StreamControl::longest_poll(TimePoint until) const {
  const TimePoint now = Clock::now();
  Duration longest = is_woken_ ? Duration::zero() : Duration(kLongestSleep);
  for (std::size_t at = 0; at < peers_.size(); ++at) {
    if (polls_[at].revents != 0) longest = Duration::zero();
    if (peers_[at].stream->is_memory() && out_.has_unsent(at)) longest = std::min<Duration>(longest, kWaitSlice);
  }
  return until <= now ? milliseconds(0) : std::chrono::ceil<milliseconds>(std::min<Duration>(until - now, longest));
}

// Sleeps until an event or `until`, and reads what has arrived. True if wake() was called.
bool StreamControl::poll_peers(TimePoint until) {
  polls_.clear();
  sleeps_ = until > Clock::now();
  for (std::size_t at = 0; at < peers_.size(); ++at) {
    Stream& stream = *peers_[at].stream;
    const short in = peers_[at].is_closed ? 0 : POLLIN;
    const short out = out_.has_unsent(at) && !stream.is_memory() ? POLLOUT : 0;
    polls_.push_back(in + out == 0 ? pollfd{-1, 0, 0} : stream.before_sleep(static_cast<short>(in | out)));
  }
  for (const Watched& one : watched_) polls_.push_back({one.fd.get(), POLLIN, 0});
  polls_.push_back({bell_, POLLIN, 0});
  polls_.push_back({wakeup_.fd(), POLLIN, 0});
  ::poll(polls_.data(), polls_.size(), static_cast<int>(longest_poll(until).count()));
  sleeps_ = false;
  polled_at_ = Clock::now();
  for (std::size_t at = 0; at < peers_.size(); ++at) {
    if (polls_[at].fd < 0 && polls_[at].events == 0) continue;
    const short ready = peers_[at].stream->after_sleep(polls_[at].revents);
    if (ready & (POLLIN | POLLERR | POLLHUP)) read_from(peers_[at]);
  }
  std::size_t at = peers_.size();
  std::erase_if(watched_, [&](const Watched& one) {
    if (polls_[at++].revents == 0) return false;
    on_process_end(one.rank);
    return true;
  });
  if (polls_.back().revents != 0) wakeup_.clear();
  const bool is_rung = polls_[polls_.size() - 2].revents != 0;
  if (is_rung && ::read(bell_, buffer_.data(), buffer_.size()) <= 0) bell_ = -1;  // its writer has ended
  return is_woken_.exchange(false) || is_rung;
}

// Reads what the peer sent before its end first: after a goodbye the end is no loss. A rank without a connection to
// this one may have said goodbye to rank 0, so rank 0 gets a suspicion.
void StreamControl::on_process_end(int rank) {
  const auto peer =
      std::find_if(peers_.begin(), peers_.end(), [rank](const ControlInbound& one) { return one.rank == rank; });
  if (peer == peers_.end()) {
    const std::string why = say("its process has ended (seen by rank ", self_.rank, ")");
    return out_.put(index_of(0), frame(FrameKind::kSuspicion, encode(AbortNotice{rank, why}),
                                       static_cast<std::uint32_t>(Evidence::kGone)));
  }
  read_from(*peer);
  if (peer->is_closed || peer->has_left) return;
  lose(rank, ended_text(*peer), rank);
}

void StreamControl::read_from(ControlInbound& peer) {
  while (!peer.is_closed) {
    iovec part = as_iovec(buffer_);
    const Moved moved = peer.stream->receive({&part, 1});
    // A process that ends with unread bytes resets its connections.
    const bool is_plain = moved.error == 0 || moved.error == ECONNRESET;
    if (moved.ended) return on_end(peer, is_plain ? "" : std::generic_category().message(moved.error));
    if (moved.bytes == 0) return;
    peer.input.insert(peer.input.end(), buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
    const std::size_t before = events_.size();
    parse(peer);
    if (events_.size() == before) add_beat(peer.rank);
  }
}

// Part of a message has arrived. One event for any number of parts.
void StreamControl::add_beat(int rank) {
  const bool is_added =
      !events_.empty() && events_.back().kind == ControlEvent::Kind::kBeat && events_.back().from == rank;
  if (!is_added) events_.push_back({.kind = ControlEvent::Kind::kBeat, .from = rank});
}

void StreamControl::parse(ControlInbound& peer) {
  std::size_t begin = 0;
  try {
    while (peer.input.size() - begin >= kFrameBytes) {
      const auto left = std::span<const std::byte>(peer.input).subspan(begin);
      const Frame frame =
          decode_frame(left.first<kFrameBytes>(), std::max<std::size_t>(config_.max_message_bytes, 8 << 10));
      self_.expect_from(frame, peer.rank, peer.incarnation);
      const std::size_t end = kFrameBytes + frame.length, tail = frame.is_checked ? kChecksumBytes : 0;
      if (left.size() < end + tail) break;
      if (frame.is_checked) expect_checksum(left.subspan(end).first<kChecksumBytes>(), crc32c(left.first(end)));
      begin += end + tail;
      on_frame(peer, frame, left.subspan(kFrameBytes, frame.length));
    }
  } catch (const ProtocolError& error) {
    peer.is_closed = true;
    return lose(peer.rank,
                say("rank ", self_.rank, ": control connection to rank ", peer.rank, " was ended: ", error.what(),
                    " (at most HORO_MAX_MESSAGE_BYTES=", config_.max_message_bytes, ")"),
                -1);
  }
  peer.input.erase(peer.input.begin(), peer.input.begin() + static_cast<std::ptrdiff_t>(begin));
}

void StreamControl::on_frame(ControlInbound& peer, const Frame& frame, std::span<const std::byte> payload) {
  if (frame.kind == FrameKind::kControl) {
    events_.push_back(
        {.kind = ControlEvent::Kind::kMessage, .from = peer.rank, .bytes = {payload.begin(), payload.end()}});
  } else if (frame.kind == FrameKind::kGoodbye) {
    if (std::exchange(peer.has_left, true)) return;
    events_.push_back({.kind = ControlEvent::Kind::kLeft, .from = peer.rank});
  } else if (frame.kind == FrameKind::kBeat) {
    const bool wants_answer = frame.segment != 0;
    events_.push_back({.kind = ControlEvent::Kind::kBeat, .from = peer.rank, .wants_answer = wants_answer});
    if (wants_answer) out_.put(index_of(peer.rank), this->frame(FrameKind::kBeat, {}));
  } else if (frame.kind == FrameKind::kSuspicion) {
    on_suspicion(peer, frame, payload);
  } else if (frame.kind == FrameKind::kAbort) {
    const AbortNotice notice = self_.notice_in(payload);
    lose(notice.origin, notice.reason, peer.rank);
  } else {
    throw ProtocolError("a frame of a kind that control connections do not carry");
  }
}

void StreamControl::on_suspicion(const ControlInbound& peer, const Frame& frame, std::span<const std::byte> payload) {
  const AbortNotice notice = self_.notice_in(payload);
  const bool is_of_no_rank = notice.origin == -1 && frame.segment == static_cast<std::uint32_t>(Evidence::kBroken);
  if (frame.segment > static_cast<std::uint32_t>(Evidence::kLate) || (notice.origin < 0 && !is_of_no_rank)) {
    throw ProtocolError("a suspicion of an unknown kind or about an unknown rank");
  }
  events_.push_back({.kind = ControlEvent::Kind::kSuspicion,
                     .from = peer.rank,
                     .reason = notice.reason,
                     .about = notice.origin,
                     .evidence = static_cast<Evidence>(frame.segment)});
}

void StreamControl::on_end(ControlInbound& peer, const std::string& why) {
  peer.is_closed = true;
  if (peer.has_left) return;
  lose(peer.rank, why.empty() ? ended_text(peer) : broken_text(peer, why), peer.rank);
}

std::string StreamControl::ended_text(const ControlInbound& peer) const {
  return say(peer.name, " is lost: ", say_ended(self_.rank));
}

std::string StreamControl::broken_text(const ControlInbound& peer, const std::string& why) const {
  return say(peer.name, " is lost: its connection broke off without a goodbye (", why, ", seen by rank ", self_.rank,
             ")");
}

// Delivers the loss, once. Rank 0, the centre of the star, forwards it to the others.
void StreamControl::lose(int origin, const std::string& reason, int reported_by) {
  if (std::exchange(lost_, true)) return;
  events_.push_back({.kind = ControlEvent::Kind::kLost, .from = origin, .reason = reason});
  if (self_.rank != 0) return;
  const Bytes notice = frame(FrameKind::kAbort, encode(AbortNotice{origin, reason}));
  for (std::size_t at = 0; at < peers_.size(); ++at) {
    if (peers_[at].rank != reported_by) out_.put_urgent(at, notice);
  }
}

// A peer that does not read must not fill the memory of this rank.
void StreamControl::check_queues() {
  for (std::size_t at = 0; at < peers_.size() && !lost_; ++at) {
    const std::size_t queued = out_.queued_bytes(at);
    if (queued <= 4 * (config_.max_message_bytes + kFrameBytes)) continue;
    lose(peers_[at].rank,
         say("rank ", self_.rank, ": rank ", peers_[at].rank, " does not read its control messages: ", queued,
             " bytes wait (4 times HORO_MAX_MESSAGE_BYTES=", config_.max_message_bytes, ")"),
         -1);
  }
}

void StreamControl::abort(int origin, const std::string& reason) noexcept {
  try {
    const Bytes notice = frame(FrameKind::kAbort, encode(AbortNotice{origin, reason}));
    for (std::size_t at = 0; at < peers_.size(); ++at) out_.put_urgent(at, notice);
  } catch (const std::bad_alloc&) {
    log_warning("no memory to send the other ranks the reason; they will find the connection closed");
  }
  out_.flush(Clock::now() + kAbortPatience);
}

// Allocates nothing, because this rank may end for want of memory.
void StreamControl::goodbye(Duration patience) noexcept {
  const TimePoint until = Clock::now() + patience;
  for (std::size_t at = 0; at < peers_.size(); ++at) out_.put_prepared(at, goodbyes_[at]);
  out_.flush(until);
  for (const ControlInbound& peer : peers_) peer.stream->end_sending();
  for (drain(peers_, buffer_); !is_all_delivered(peers_) && Clock::now() < until; drain(peers_, buffer_)) {
    farewell_polls_.clear();
    for (const ControlInbound& peer : peers_)
      farewell_polls_.push_back({peer.is_closed ? -1 : peer.stream->socket(), POLLIN, 0});
    ::poll(farewell_polls_.data(), farewell_polls_.size(), static_cast<int>(kWaitSlice.count()));
  }
}

}  // namespace

std::unique_ptr<ControlLink> make_stream_control(const Config& config, const Identity& self,
                                                 std::vector<Connection> connections, std::vector<Watched> watched) {
  return std::make_unique<StreamControl>(config, self, std::move(connections), std::move(watched));
}

}  // namespace horo
