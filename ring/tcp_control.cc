// The control link over TCP: frames that are queued in memory and written as the socket takes them, a poll that sleeps
// until a peer speaks, hangs up or wake() is called, and no time-out of its own, so that an idle engine costs nothing.
// Reading is the engine thread's alone. Writing is done by whoever holds the writing role, because abort() may come
// from any thread; an abort notice overtakes every message that has not begun.

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <list>
#include <stdexcept>
#include <system_error>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/mutex.h"
#include "ring/say.h"
#include "ring/tcp_parts.h"

namespace horo {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kReadBytes = 64 << 10;
constexpr milliseconds kAbortPatience{100};
constexpr milliseconds kLongestSleep{60'000};

// What is read of one peer, by the engine thread.
struct Inbound {
  Fd fd;
  int rank = 0;
  std::uint32_t incarnation = 0;
  Bytes input;
  bool said_goodbye = false;
  bool is_closed = false;
};

// What is still to be written to it.
struct Outbound {
  std::list<Bytes> queue;  // an insertion moves none of the others, so one may be written meanwhile
  std::size_t sent = 0;    // of the first
  std::size_t queued_bytes = 0;
  bool is_broken = false;
};

class TcpControl final : public ControlLink {
 public:
  TcpControl(const Config& config, const Identity& self, std::vector<Connection> connections);
  ~TcpControl() override { drain(); }

  void send(int to, Bytes bytes) override;
  std::vector<ControlEvent> wait(TimePoint until) override;
  void wake() noexcept override { wakeup_.wake(); }
  void abort(int origin, const std::string& reason) noexcept override;
  void goodbye(Duration patience) noexcept override;

 private:
  Bytes frame(FrameKind kind, std::span<const std::byte> payload) const;
  std::size_t index_of(int rank) const;
  void enqueue(std::size_t at, Bytes bytes) REQUIRES(mutex_);
  void enqueue_urgent(std::size_t at, const Bytes& bytes) REQUIRES(mutex_);
  void flush(TimePoint patience) noexcept;
  bool has_unsent() const;
  Bytes* next_unsent(std::size_t at);
  bool write_some(std::size_t at);
  bool poll_peers(TimePoint until);
  void read_from(Inbound& peer);
  void parse(Inbound& peer);
  void on_frame(Inbound& peer, const Frame& frame, std::span<const std::byte> payload);
  void on_end(Inbound& peer, const std::string& why);
  void lose(int origin, const std::string& reason, int told_by);
  void check_queues();
  void drain() noexcept;
  bool all_is_read() const noexcept;

  const Config config_;
  const Identity self_;
  Wakeup wakeup_;
  std::vector<Inbound> peers_;
  std::vector<ControlEvent> events_;
  bool lost_ = false;
  std::vector<std::byte> buffer_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool is_writing_ GUARDED_BY(mutex_) = false;    // somebody holds the writing role
  std::vector<Outbound> out_ GUARDED_BY(mutex_);  // as peers_
};

TcpControl::TcpControl(const Config& config, const Identity& self, std::vector<Connection> connections)
    : config_(config), self_(self), buffer_(kReadBytes), out_(connections.size()) {
  for (Connection& one : connections) {
    peers_.emplace_back();
    peers_.back().fd = std::move(one.fd);
    peers_.back().rank = one.peer;
    peers_.back().incarnation = one.incarnation;
  }
}

Bytes TcpControl::frame(FrameKind kind, std::span<const std::byte> payload) const {
  Frame frame = self_.frame(kind);
  frame.length = payload.size();
  const FrameBytes header = encode(frame);
  Bytes bytes(header.size() + payload.size());
  std::copy(payload.begin(), payload.end(), std::copy(header.begin(), header.end(), bytes.begin()));
  return bytes;
}

std::size_t TcpControl::index_of(int rank) const {
  const auto found = std::find_if(peers_.begin(), peers_.end(), [&](const Inbound& one) { return one.rank == rank; });
  HORO_CHECK(found != peers_.end());
  return static_cast<std::size_t>(found - peers_.begin());
}

void TcpControl::enqueue(std::size_t at, Bytes bytes) {
  if (out_[at].is_broken) return;
  out_[at].queued_bytes += bytes.size();
  out_[at].queue.push_back(std::move(bytes));
}

// Right behind the message that is half out, if one is.
void TcpControl::enqueue_urgent(std::size_t at, const Bytes& bytes) {
  Outbound& out = out_[at];
  if (out.is_broken) return;
  out.queued_bytes += bytes.size();
  const bool first_begun = !out.queue.empty() && (out.sent > 0 || is_writing_);
  out.queue.insert(first_begun ? std::next(out.queue.begin()) : out.queue.begin(), bytes);
}

void TcpControl::send(int to, Bytes bytes) {
  if (bytes.size() > config_.max_message_bytes) {
    throw std::invalid_argument(say("a control message of ", bytes.size(), " bytes, at most ",
                                    config_.max_message_bytes, " are allowed (HORO_MAX_MESSAGE_BYTES)"));
  }
  {
    MutexLock lock(mutex_);
    enqueue(index_of(to), frame(FrameKind::kControl, bytes));
  }
  flush(Clock::now());
}

bool TcpControl::has_unsent() const {
  MutexLock lock(mutex_);
  return std::any_of(out_.begin(), out_.end(), [](const Outbound& out) { return !out.queue.empty(); });
}

// Only the holder of the writing role removes messages, so the first one stays where it is after the lock is released.
Bytes* TcpControl::next_unsent(std::size_t at) {
  MutexLock lock(mutex_);
  return out_[at].queue.empty() ? nullptr : &out_[at].queue.front();
}

bool TcpControl::write_some(std::size_t at) {
  const Bytes* bytes = next_unsent(at);
  if (bytes == nullptr) return false;
  std::size_t sent = 0;
  {
    MutexLock lock(mutex_);
    sent = out_[at].sent;
  }
  iovec part = as_iovec(std::span(*bytes).subspan(sent));
  const Moved moved = send_some(peers_[at].fd.get(), {&part, 1});
  MutexLock lock(mutex_);
  Outbound& out = out_[at];
  out.sent += moved.bytes;
  if (out.sent == out.queue.front().size()) {
    out.queued_bytes -= out.sent;
    out.queue.pop_front();
    out.sent = 0;
  }
  if (moved.ended) {
    out.is_broken = true;
    out.queue.clear();
    out.queued_bytes = out.sent = 0;
  }
  return moved.bytes > 0;
}

// Writes what the sockets take; waits for more room until `patience` has come.
void TcpControl::flush(TimePoint patience) noexcept {
  {
    MutexLock lock(mutex_);
    while (is_writing_ && Clock::now() < patience) changed_.wait_until(mutex_, patience);
    if (is_writing_) return;  // who holds the role writes ours as well, or the next wait() does
    is_writing_ = true;
  }
  while (true) {
    for (std::size_t at = 0; at < peers_.size(); ++at) {
      while (write_some(at)) {
      }
    }
    if (Clock::now() >= patience || !has_unsent()) break;
    std::vector<pollfd> polls;
    for (const Inbound& peer : peers_) polls.push_back({peer.fd.get(), POLLOUT, 0});
    ::poll(polls.data(), polls.size(), static_cast<int>(kWaitSlice.count()));
  }
  MutexLock lock(mutex_);
  is_writing_ = false;
  changed_.notify_all();
}

std::vector<ControlEvent> TcpControl::wait(TimePoint until) {
  while (true) {
    flush(Clock::now());
    check_queues();
    const bool woken = poll_peers(events_.empty() ? until : TimePoint::min());
    if (!events_.empty() || woken || Clock::now() >= until) {
      flush(Clock::now());  // what the peers said may have queued notices
      return std::exchange(events_, {});
    }
  }
}

// True if somebody called wake().
bool TcpControl::poll_peers(TimePoint until) {
  std::vector<pollfd> polls;
  for (std::size_t at = 0; at < peers_.size(); ++at) {
    const short in = peers_[at].is_closed ? 0 : POLLIN;
    const short out = next_unsent(at) != nullptr ? POLLOUT : 0;
    polls.push_back({peers_[at].is_closed && out == 0 ? -1 : peers_[at].fd.get(), static_cast<short>(in | out), 0});
  }
  polls.push_back({wakeup_.fd(), POLLIN, 0});
  const TimePoint now = Clock::now();
  const auto left =
      until <= now ? milliseconds(0) : std::chrono::ceil<milliseconds>(std::min<Duration>(until - now, kLongestSleep));
  ::poll(polls.data(), polls.size(), static_cast<int>(left.count()));
  for (std::size_t at = 0; at < peers_.size(); ++at) {
    if (!peers_[at].is_closed && (polls[at].revents & (POLLIN | POLLERR | POLLHUP))) read_from(peers_[at]);
  }
  if (polls.back().revents == 0) return false;
  wakeup_.clear();
  return true;
}

void TcpControl::read_from(Inbound& peer) {
  while (!peer.is_closed) {
    iovec part = as_iovec(buffer_);
    const Moved moved = receive_some(peer.fd.get(), {&part, 1});
    if (moved.ended) return on_end(peer, moved.error == 0 ? "" : std::generic_category().message(moved.error));
    if (moved.bytes == 0) return;
    peer.input.insert(peer.input.end(), buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
    parse(peer);
  }
}

void TcpControl::parse(Inbound& peer) {
  std::size_t begin = 0;
  try {
    while (peer.input.size() - begin >= kFrameBytes) {
      const auto left = std::span<const std::byte>(peer.input).subspan(begin);
      const Frame frame =
          decode_frame(left.first<kFrameBytes>(), std::max<std::size_t>(config_.max_message_bytes, 8 << 10));
      self_.expect_from(frame, peer.rank, peer.incarnation);
      if (left.size() - kFrameBytes < frame.length) break;
      begin += kFrameBytes + frame.length;
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

void TcpControl::on_frame(Inbound& peer, const Frame& frame, std::span<const std::byte> payload) {
  if (frame.kind == FrameKind::kControl) {
    events_.push_back({ControlEvent::Kind::kMessage, peer.rank, {payload.begin(), payload.end()}, ""});
  } else if (frame.kind == FrameKind::kGoodbye) {
    peer.said_goodbye = true;
  } else if (frame.kind == FrameKind::kAbort) {
    const AbortNotice notice = decode_abort(payload);
    lose(notice.origin, notice.reason, peer.rank);
  } else {
    throw ProtocolError("a frame of a kind that has no place here");
  }
}

void TcpControl::on_end(Inbound& peer, const std::string& why) {
  peer.is_closed = true;
  if (peer.said_goodbye) return events_.push_back({ControlEvent::Kind::kLeft, peer.rank, {}, ""});
  lose(peer.rank,
       say("rank ", peer.rank, " broke off its connection without a goodbye; did its process end? ",
           why.empty() ? "" : "(" + why + ", ", why.empty() ? "(" : "", "seen by rank ", self_.rank, ")"),
       peer.rank);
}

// Delivered once. Rank 0, the centre of the star, passes it on.
void TcpControl::lose(int origin, const std::string& reason, int told_by) {
  if (std::exchange(lost_, true)) return;
  events_.push_back({ControlEvent::Kind::kLost, origin, {}, reason});
  if (self_.rank != 0) return;
  const Bytes notice = frame(FrameKind::kAbort, encode(AbortNotice{origin, reason}));
  MutexLock lock(mutex_);
  for (std::size_t at = 0; at < peers_.size(); ++at) {
    if (peers_[at].rank != told_by) enqueue_urgent(at, notice);
  }
}

// A peer that does not read must not fill our memory.
void TcpControl::check_queues() {
  for (std::size_t at = 0; at < peers_.size() && !lost_; ++at) {
    std::size_t queued = 0;
    {
      MutexLock lock(mutex_);
      queued = out_[at].queued_bytes;
    }
    if (queued <= 4 * (config_.max_message_bytes + kFrameBytes)) continue;
    lose(peers_[at].rank,
         say("rank ", self_.rank, ": rank ", peers_[at].rank, " does not read its control messages: ", queued,
             " bytes wait (4 times HORO_MAX_MESSAGE_BYTES=", config_.max_message_bytes, ")"),
         -1);
  }
}

void TcpControl::abort(int origin, const std::string& reason) noexcept {
  const Bytes notice = frame(FrameKind::kAbort, encode(AbortNotice{origin, reason}));
  {
    MutexLock lock(mutex_);
    for (std::size_t at = 0; at < peers_.size(); ++at) enqueue_urgent(at, notice);
  }
  flush(Clock::now() + kAbortPatience);
}

void TcpControl::drain() noexcept {
  for (Inbound& peer : peers_) {
    for (std::size_t read = 0; !peer.is_closed && read < 64; ++read) {
      iovec part = as_iovec(buffer_);
      const Moved moved = receive_some(peer.fd.get(), {&part, 1});
      if (moved.ended) peer.is_closed = true;
      if (moved.bytes == 0) break;
    }
  }
}

// The kernel of every peer that is still there has acknowledged the last byte.
bool TcpControl::all_is_read() const noexcept {
  return std::all_of(peers_.begin(), peers_.end(), [](const Inbound& peer) {
    int waiting = 0;
    return peer.is_closed || ::ioctl(peer.fd.get(), SIOCOUTQ, &waiting) != 0 || waiting == 0;
  });
}

void TcpControl::goodbye(Duration patience) noexcept {
  const TimePoint until = Clock::now() + patience;
  const Bytes last = frame(FrameKind::kGoodbye, {});
  {
    MutexLock lock(mutex_);
    for (std::size_t at = 0; at < peers_.size(); ++at) enqueue(at, last);
  }
  flush(until);
  for (const Inbound& peer : peers_) ::shutdown(peer.fd.get(), SHUT_WR);
  for (drain(); !all_is_read() && Clock::now() < until; drain()) {
    std::vector<pollfd> polls;
    for (const Inbound& peer : peers_) polls.push_back({peer.is_closed ? -1 : peer.fd.get(), POLLIN, 0});
    ::poll(polls.data(), polls.size(), static_cast<int>(kWaitSlice.count()));
  }
}

}  // namespace

std::unique_ptr<ControlLink> make_tcp_control(const Config& config, const Identity& self,
                                              std::vector<Connection> connections) {
  return std::make_unique<TcpControl>(config, self, std::move(connections));
}

}  // namespace horo
