// One poll loop carries all handshakes at once, those we began and those that strangers began, each with its own
// deadline, so nobody can hold up anybody else. It also looks at the processes of the ranks that are still missing and
// at the connections of those that are here, so that a start without hope ends at once.

#include "ring/bootstrap/full_mesh.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <set>
#include <system_error>

#include "horo/base/error.h"
#include "horo/base/log.h"
#include "horo/base/say.h"
#include "ring/bootstrap/pending_connection.h"

namespace horo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstBackOff{1};
constexpr milliseconds kLastBackOff{100};
constexpr milliseconds kTellPatience{2'000};
constexpr std::size_t kLookAheadBytes = 64 << 10;
// Handshakes of strangers at one time; the oldest gives way, because an honest one takes milliseconds.
constexpr std::size_t kMaxStrangers = 512;

// Where the kernel says who is at the other end, it has to be this user, before a byte of it is looked at. "" if so.
std::string foreign_user(int fd) {
  const std::optional<uid_t> user = peer_user(fd);
  if (!user || *user == ::geteuid()) return "";
  return say("the socket's other end belongs to user ", *user, ", expected user ", ::geteuid());
}

// A target, with the call in progress or the time of the next one.
struct Call {
  const DialTarget* target = nullptr;
  std::unique_ptr<PendingConnection> pending;
  TimePoint again = TimePoint::min();
  milliseconds back_off = kFirstBackOff;
  std::size_t next_address = 0;
  bool is_done = false;
  std::string last_error, last_answer;  // an answer is the reason of a target that was there
};

class Host {
 public:
  explicit Host(const FullMesh& meeting) : meeting_(meeting), missing_(meeting.callers) {
    for (const DialTarget& target : meeting.callees) {
      calls_.emplace_back();
      calls_.back().target = &target;
    }
  }

  std::vector<Connection> run() {
    while (!missing_.empty() || !std::all_of(calls_.begin(), calls_.end(), [](const Call& c) { return c.is_done; })) {
      const TimePoint now = Clock::now();
      if (lost_ && now >= tell_until_) break;
      if (!lost_ && now >= meeting_.until) throw_missing();
      for (Call& call : calls_) start(call, now);
      drop_late(now);
      poll_once(now);
    }
    if (dropped_ > 0) log_warning(strangers_text());
    if (lost_) throw PeerLost(*lost_);
    return std::move(met_);
  }

 private:
  void start(Call& call, TimePoint now) {
    if (call.is_done || call.pending || now < call.again) return;
    const auto& addresses = call.target->addresses;
    const Address& address = addresses[call.next_address++ % addresses.size()];
    Fd fd = dial(address);
    if (!fd.is_open()) return fail(call, std::generic_category().message(errno));
    const DialTarget& target = *call.target;
    call.pending = std::make_unique<PendingConnection>(
        std::move(fd), Handshake::dialing(meeting_.self, target.rank, target.purpose, target.number),
        now + meeting_.hello_timeout);
  }

  void fail(Call& call, const std::string& why) {
    const Address& address = call.target->addresses[(call.next_address - 1) % call.target->addresses.size()];
    call.last_error = to_text(address) + ": " + why;
    if (call.pending && call.pending->is_answered()) call.last_answer = call.last_error;
    call.pending.reset();
    call.again = Clock::now() + call.back_off;
    call.back_off = std::min(call.back_off * 2, kLastBackOff);
  }

  void drop_late(TimePoint now) {
    for (Call& call : calls_) {
      if (call.pending && now >= call.pending->until())
        fail(call, "no answer within the hello timeout (HORO_HELLO_TIMEOUT_MS)");
    }
    while (!strangers_.empty() && now >= strangers_.front()->until()) {
      drop_oldest("no hello within the hello timeout (HORO_HELLO_TIMEOUT_MS)");
    }
  }

  void drop(const PendingConnection& pending, const std::string& why) {
    if (dropped_++ == 0) first_dropped_ = say("from ", peer_text(pending.fd()), ": ", why);
  }

  std::string strangers_text() const {
    return say("strangers dropped: ", dropped_, ", by rank ", meeting_.self.rank, " at ",
               to_text(local_address(meeting_.listener)), " during the start; the first ", first_dropped_);
  }

  // The meeting has failed. Who is here or still comes is told why, so that nobody names a rank that only gave up.
  void lose(int rank, const std::string& why) {
    if (lost_) return;
    lost_.emplace(rank, why);
    tell_until_ = std::min<TimePoint>(meeting_.until, Clock::now() + kTellPatience);
    for (const Connection& connection : met_) send_abort(connection, meeting_.self, {rank, why});
    std::erase_if(missing_, [rank](const Dialer& caller) { return caller.rank == rank; });
    for (Call& call : calls_) {
      if (call.target->rank == rank) call.is_done = true;
    }
  }

  void welcome(Connection connection) {
    connection.name = name_of(connection.peer);
    if (lost_) send_abort(connection, meeting_.self, {lost_->origin(), lost_->what()});
    met_.push_back(std::move(connection));
  }

  std::string name_of(int rank) const {
    return meeting_.names.empty() ? say("rank ", rank) : meeting_.names[static_cast<std::size_t>(rank)];
  }

  bool is_awaited(int rank) const {
    const auto calls = [rank](const Dialer& caller) { return caller.rank == rank; };
    const auto is_called = [rank](const Call& call) { return !call.is_done && call.target->rank == rank; };
    return std::any_of(missing_.begin(), missing_.end(), calls) || std::any_of(calls_.begin(), calls_.end(), is_called);
  }

  // Somebody who was here has closed, perhaps after it said why. What does not hinder the meeting is for those who have
  // the connection after it: a rank may have done all it had to do.
  void on_hangup(const Connection& connection) {
    hung_up_.insert(connection.fd.get());
    const auto notice = find_abort(connection.fd.get());
    if (notice && is_awaited(notice->origin)) return lose(notice->origin, notice->reason);
    if (!is_awaited(connection.peer)) return;
    lose(connection.peer, say(name_of(connection.peer), " is lost: it ended while the ranks were still connecting ",
                              "(connection closed, seen by rank ", meeting_.self.rank, ")"));
  }

  TimePoint next_event(TimePoint now) const {
    TimePoint next = std::min<TimePoint>(meeting_.until, now + milliseconds(100));
    for (const Call& call : calls_) {
      if (!call.is_done) next = std::min(next, call.pending ? call.pending->until() : call.again);
    }
    if (!strangers_.empty()) next = std::min(next, strangers_.front()->until());
    return next;
  }

  void poll_once(TimePoint now) {
    std::vector<pollfd> polls;
    std::vector<Call*> called;
    for (Call& call : calls_) {
      if (!call.pending) continue;
      polls.push_back({call.pending->fd(), call.pending->events(), 0});
      called.push_back(&call);
    }
    for (const auto& pending : strangers_) polls.push_back({pending->fd(), pending->events(), 0});
    const std::size_t watched_from = polls.size();
    for (const Watched& one : meeting_.watched) {
      polls.push_back({lost_ || !is_awaited(one.rank) ? -1 : one.fd.get(), POLLIN, 0});
    }
    const std::size_t met_from = polls.size(), met_count = met_.size();
    for (const Connection& one : met_) {
      polls.push_back({lost_ || hung_up_.contains(one.fd.get()) ? -1 : one.fd.get(), POLLRDHUP, 0});
    }
    polls.push_back({meeting_.listener, POLLIN, 0});
    polls.push_back({meeting_.local_listener, POLLIN, 0});
    const auto wait = std::chrono::ceil<milliseconds>(std::max(next_event(now) - Clock::now(), Duration::zero()));
    ::poll(polls.data(), polls.size(), static_cast<int>(wait.count()));
    for (std::size_t i = 0; i < called.size(); ++i) {
      if (polls[i].revents != 0) advance(*called[i]);
    }
    std::vector<std::unique_ptr<PendingConnection>> talks = std::exchange(strangers_, {});
    for (std::size_t i = 0; i < talks.size(); ++i) {
      if (polls[called.size() + i].revents == 0 || advance(*talks[i])) strangers_.push_back(std::move(talks[i]));
    }
    for (std::size_t i = 0; i < met_count; ++i) {
      if (polls[met_from + i].revents != 0) on_hangup(met_[i]);
    }
    for (std::size_t i = 0; i < meeting_.watched.size(); ++i) {
      const int rank = meeting_.watched[i].rank;
      if (polls[watched_from + i].revents == 0) continue;
      lose(rank, say(name_of(rank), " is lost: its process ended while the ranks were still connecting (seen by rank ",
                     meeting_.self.rank, ")"));
    }
    if (polls[polls.size() - 2].revents != 0) accept_all(meeting_.listener);
    if (polls.back().revents != 0) accept_all(meeting_.local_listener);
  }

  void advance(Call& call) {
    if (const std::string foreign = foreign_user(call.pending->fd()); !foreign.empty()) return fail(call, foreign);
    try {
      call.pending->advance();
      if (!call.pending->is_done()) return;
      welcome(call.pending->take());
      call.pending.reset();
      call.is_done = true;
    } catch (const ProtocolError& error) {
      fail(call, error.what());
    }
  }

  // True while the handshake goes on.
  bool advance(PendingConnection& pending) {
    try {
      pending.advance();
      if (!pending.is_done()) return true;
      welcome(pending);
    } catch (const ProtocolError& error) {
      drop(pending, error.what());
    }
    return false;
  }

  // Takes the connection of somebody who is expected; throws ProtocolError if nobody is.
  void welcome(PendingConnection& pending) {
    const Handshake& known = pending.handshake();
    const auto expected = std::find_if(missing_.begin(), missing_.end(), [&](const Dialer& caller) {
      return caller.rank == known.peer() && caller.purpose == known.purpose() && caller.number == known.number();
    });
    if (expected == missing_.end()) throw ProtocolError(say("rank ", known.peer(), " called and was not expected"));
    missing_.erase(expected);
    welcome(pending.take());
  }

  void accept_all(int listener) {
    for (std::size_t accepted = 0; accepted < kMaxStrangers; ++accepted) {  // whoever is here already has a turn too
      Fd fd = accept_at(listener);
      if (!fd.is_open() && !make_room(errno)) return;
      if (!fd.is_open()) continue;
      if (strangers_.size() == kMaxStrangers) drop_oldest("too many handshakes at one time");
      strangers_.push_back(std::make_unique<PendingConnection>(std::move(fd), Handshake::accepting(meeting_.self),
                                                               Clock::now() + meeting_.hello_timeout));
      strangers_.back()->set_connected();
      if (const std::string foreign = foreign_user(strangers_.back()->fd()); !foreign.empty()) {
        drop(*strangers_.back(), foreign);
        strangers_.pop_back();
      }
    }
  }

  void drop_oldest(const std::string& why) {
    drop(*strangers_.front(), why);
    strangers_.erase(strangers_.begin());
  }

  // True if accepting failed for want of a descriptor, and one is free now.
  bool make_room(int error) {
    if (error != EMFILE && error != ENFILE) return false;
    if (strangers_.empty()) {
      throw std::system_error(error, std::generic_category(),
                              say("rank ", meeting_.self.rank,
                                  " cannot accept connections; raise the limit of open "
                                  "files before the job starts (ulimit -n)"));
    }
    drop_oldest("no descriptor was left for it (ulimit -n)");
    return true;
  }

  // Who is here already is told, so that everybody's error names those who are not.
  [[noreturn]] void throw_missing() {
    std::vector<int> ranks;
    std::string last;
    for (const Dialer& caller : missing_) ranks.push_back(caller.rank);
    for (const Call& call : calls_) {
      if (call.is_done) continue;
      ranks.push_back(call.target->rank);
      if (!call.last_error.empty()) last = "; last error: " + call.last_error;
      if (!call.last_answer.empty() && call.last_answer != call.last_error) last += "; before it: " + call.last_answer;
    }
    if (dropped_ > 0) last += "; " + strangers_text();
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    const std::string why =
        say("rank ", meeting_.self.rank, ": ", say_ranks(ranks), " did not connect ", meeting_.too_late, last);
    for (const Connection& connection : met_) send_abort(connection, meeting_.self, {ranks.front(), why});
    throw PeerLost(ranks.front(), why);
  }

  const FullMesh& meeting_;
  std::vector<Dialer> missing_;
  std::vector<Call> calls_;
  std::vector<std::unique_ptr<PendingConnection>> strangers_;  // the oldest first
  std::vector<Connection> met_;
  std::set<int> hung_up_;  // descriptors in met_
  std::size_t dropped_ = 0;
  std::string first_dropped_;
  std::optional<PeerLost> lost_;
  TimePoint tell_until_{};
};

}  // namespace

std::vector<std::byte> abort_message(const Identity& self, const AbortNotice& notice) {
  return message_of(self.frame(FrameKind::kAbort), encode(notice));
}

void send_abort(const Connection& connection, const Identity& self, const AbortNotice& notice) {
  const auto message = abort_message(self, notice);
  iovec part = as_iovec(message);
  send_some(connection.fd.get(), {&part, 1});
}

std::optional<AbortNotice> find_abort(int fd) {
  std::vector<std::byte> bytes(kLookAheadBytes);
  const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  std::span<const std::byte> left(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  try {
    while (left.size() >= kFrameBytes) {
      const Frame frame = decode_frame(left.first<kFrameBytes>(), left.size() - kFrameBytes);
      const auto payload = left.subspan(kFrameBytes, frame.length);
      if (frame.kind == FrameKind::kAbort) return decode_abort(payload);
      left = left.subspan(std::min<std::size_t>(left.size(), frame.bytes()));
    }
  } catch (const ProtocolError&) {
    return std::nullopt;
  }
  return std::nullopt;
}

std::vector<Connection> meet(const FullMesh& meeting) {
  return Host(meeting).run();
}

}  // namespace horo
