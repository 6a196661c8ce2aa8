// One poll loop carries all handshakes at once, those we began and those that strangers began, each with its own
// deadline, so nobody can hold up anybody else. A handshake reads exactly the bytes of one hello at a time into a fixed
// limit.

#include "ring/meeting.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <system_error>

#include "horo/base/error.h"
#include "horo/base/log.h"
#include "ring/say.h"

namespace horo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstBackOff{1};
constexpr milliseconds kLastBackOff{100};
// Handshakes of strangers at one time; the oldest gives way, because an honest one takes milliseconds.
constexpr std::size_t kMaxStrangers = 512;

// One connection on its way: bytes in, bytes out.
class Talk {
 public:
  Talk(Fd fd, Handshake handshake, TimePoint until)
      : fd_(std::move(fd)), handshake_(std::move(handshake)), until_(until) {}

  int fd() const { return fd_.get(); }
  TimePoint until() const { return until_; }
  const Handshake& handshake() const { return handshake_; }
  bool is_done() const { return handshake_.is_done() && output_.empty(); }
  Connection take() { return {std::move(fd_), handshake_.peer(), handshake_.peer_incarnation(), handshake_.purpose()}; }

  short events() {
    flush_handshake();
    return static_cast<short>((output_.empty() ? 0 : POLLOUT) | (is_connected_ && handshake_.wants() > 0 ? POLLIN : 0));
  }
  void set_connected() { is_connected_ = true; }

  // Throws ProtocolError; the connection is over then.
  void advance() {
    if (!is_connected_) {
      if (const int error = error_of(fd())) throw ProtocolError(std::generic_category().message(error));
      is_connected_ = true;
    }
    while (write() || read()) {
    }
  }

 private:
  void flush_handshake() {
    const auto more = handshake_.take_output();
    output_.insert(output_.end(), more.begin(), more.end());
  }

  bool write() {
    flush_handshake();
    if (output_.empty()) return false;
    iovec part = as_iovec(output_);
    const Moved moved = send_some(fd(), {&part, 1});
    check(moved);
    output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
    return moved.bytes > 0;
  }

  bool read() {
    if (handshake_.wants() == 0) return false;
    input_.resize(handshake_.wants());
    iovec part = as_iovec(std::span(input_).subspan(got_));
    const Moved moved = receive_some(fd(), {&part, 1});
    check(moved);
    got_ += moved.bytes;
    if (got_ < input_.size()) return false;
    got_ = 0;
    handshake_.feed(input_);
    return true;
  }

  static void check(const Moved& moved) {
    if (!moved.ended) return;
    throw ProtocolError(moved.error == 0 ? "it closed the connection (another job, epoch, size or key?)"
                                         : std::generic_category().message(moved.error));
  }

  Fd fd_;
  Handshake handshake_;
  TimePoint until_;
  bool is_connected_ = false;
  std::vector<std::byte> output_, input_;
  std::size_t got_ = 0;
};

// Where the kernel says who is at the other end, it has to be this user, before a byte of it is looked at. "" if so.
std::string foreign_user(int fd) {
  const std::optional<uid_t> user = peer_user(fd);
  if (!user || *user == ::geteuid()) return "";
  return say("the socket's other end belongs to user ", *user, ", expected user ", ::geteuid());
}

// A callee, with the call in progress or the time of the next one.
struct Call {
  const Callee* callee = nullptr;
  std::unique_ptr<Talk> talk;
  TimePoint again = TimePoint::min();
  milliseconds back_off = kFirstBackOff;
  std::size_t next_address = 0;
  bool is_done = false;
  std::string last_error;
};

class Host {
 public:
  explicit Host(const Meeting& meeting) : meeting_(meeting), missing_(meeting.callers) {
    for (const Callee& callee : meeting.callees) {
      calls_.emplace_back();
      calls_.back().callee = &callee;
    }
  }

  std::vector<Connection> run() {
    while (!missing_.empty() || !std::all_of(calls_.begin(), calls_.end(), [](const Call& c) { return c.is_done; })) {
      const TimePoint now = Clock::now();
      if (now >= meeting_.until) throw_missing();
      for (Call& call : calls_) start(call, now);
      drop_late(now);
      poll_once(now);
    }
    if (dropped_ > 0) log_warning(strangers_text());
    return std::move(met_);
  }

 private:
  void start(Call& call, TimePoint now) {
    if (call.is_done || call.talk || now < call.again) return;
    const auto& addresses = call.callee->addresses;
    const Address& address = addresses[call.next_address++ % addresses.size()];
    Fd fd = dial(address);
    if (!fd.is_open()) return fail(call, std::generic_category().message(errno));
    call.talk = std::make_unique<Talk>(std::move(fd),
                                       Handshake::dialing(meeting_.self, call.callee->rank, call.callee->purpose),
                                       now + meeting_.hello_timeout);
  }

  void fail(Call& call, const std::string& why) {
    const Address& address = call.callee->addresses[(call.next_address - 1) % call.callee->addresses.size()];
    call.last_error = to_text(address) + ": " + why;
    call.talk.reset();
    call.again = Clock::now() + call.back_off;
    call.back_off = std::min(call.back_off * 2, kLastBackOff);
  }

  void drop_late(TimePoint now) {
    for (Call& call : calls_) {
      if (call.talk && now >= call.talk->until())
        fail(call, "no answer within the hello timeout (HORO_HELLO_TIMEOUT_MS)");
    }
    while (!strangers_.empty() && now >= strangers_.front()->until()) {
      drop_oldest("no hello within the hello timeout (HORO_HELLO_TIMEOUT_MS)");
    }
  }

  void drop(const Talk& talk, const std::string& why) {
    if (dropped_++ == 0) first_dropped_ = say("from ", peer_text(talk.fd()), ": ", why);
  }

  std::string strangers_text() const {
    return say("strangers dropped: ", dropped_, ", by rank ", meeting_.self.rank, " at ",
               to_text(local_address(meeting_.listener)), " during the start; the first ", first_dropped_);
  }

  TimePoint next_event(TimePoint now) const {
    TimePoint next = std::min<TimePoint>(meeting_.until, now + milliseconds(100));
    for (const Call& call : calls_) {
      if (!call.is_done) next = std::min(next, call.talk ? call.talk->until() : call.again);
    }
    if (!strangers_.empty()) next = std::min(next, strangers_.front()->until());
    return next;
  }

  void poll_once(TimePoint now) {
    std::vector<pollfd> polls;
    std::vector<Call*> called;
    for (Call& call : calls_) {
      if (!call.talk) continue;
      polls.push_back({call.talk->fd(), call.talk->events(), 0});
      called.push_back(&call);
    }
    for (const auto& talk : strangers_) polls.push_back({talk->fd(), talk->events(), 0});
    polls.push_back({meeting_.listener, POLLIN, 0});
    const auto wait = std::chrono::ceil<milliseconds>(std::max(next_event(now) - Clock::now(), Duration::zero()));
    ::poll(polls.data(), polls.size(), static_cast<int>(wait.count()));
    for (std::size_t i = 0; i < called.size(); ++i) {
      if (polls[i].revents != 0) advance(*called[i]);
    }
    std::vector<std::unique_ptr<Talk>> talks = std::exchange(strangers_, {});
    for (std::size_t i = 0; i < talks.size(); ++i) {
      if (polls[called.size() + i].revents == 0 || advance(*talks[i])) strangers_.push_back(std::move(talks[i]));
    }
    if (polls.back().revents != 0) accept_all();
  }

  void advance(Call& call) {
    if (const std::string foreign = foreign_user(call.talk->fd()); !foreign.empty()) return fail(call, foreign);
    try {
      call.talk->advance();
      if (!call.talk->is_done()) return;
      met_.push_back(call.talk->take());
      call.talk.reset();
      call.is_done = true;
    } catch (const ProtocolError& error) {
      fail(call, error.what());
    }
  }

  // True while the handshake goes on.
  bool advance(Talk& talk) {
    try {
      talk.advance();
      if (!talk.is_done()) return true;
      welcome(talk);
    } catch (const ProtocolError& error) {
      drop(talk, error.what());
    }
    return false;
  }

  // Takes the connection of somebody who is expected; throws ProtocolError if nobody is.
  void welcome(Talk& talk) {
    const Handshake& known = talk.handshake();
    const auto expected = std::find_if(missing_.begin(), missing_.end(), [&](const Caller& caller) {
      return caller.rank == known.peer() && caller.purpose == known.purpose();
    });
    if (expected == missing_.end()) throw ProtocolError(say("rank ", known.peer(), " called and was not expected"));
    missing_.erase(expected);
    met_.push_back(talk.take());
  }

  void accept_all() {
    for (std::size_t accepted = 0; accepted < kMaxStrangers; ++accepted) {  // whoever is here already has a turn too
      Fd fd = accept_at(meeting_.listener);
      if (!fd.is_open() && !make_room(errno)) return;
      if (!fd.is_open()) continue;
      if (strangers_.size() == kMaxStrangers) drop_oldest("too many handshakes at one time");
      strangers_.push_back(std::make_unique<Talk>(std::move(fd), Handshake::accepting(meeting_.self),
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
    for (const Caller& caller : missing_) ranks.push_back(caller.rank);
    for (const Call& call : calls_) {
      if (call.is_done) continue;
      ranks.push_back(call.callee->rank);
      if (!call.last_error.empty()) last = "; last error: " + call.last_error;
    }
    if (dropped_ > 0) last += "; " + strangers_text();
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    const std::string why =
        say("rank ", meeting_.self.rank, ": ", say_ranks(ranks), " did not connect ", meeting_.too_late, last);
    for (const Connection& connection : met_) send_abort(connection, meeting_.self, {ranks.front(), why});
    throw PeerLost(ranks.front(), why);
  }

  const Meeting& meeting_;
  std::vector<Caller> missing_;
  std::vector<Call> calls_;
  std::vector<std::unique_ptr<Talk>> strangers_;  // the oldest first
  std::vector<Connection> met_;
  std::size_t dropped_ = 0;
  std::string first_dropped_;
};

}  // namespace

void send_abort(const Connection& connection, const Identity& self, const AbortNotice& notice) {
  const auto payload = encode(notice);
  Frame frame = self.frame(FrameKind::kAbort);
  frame.length = payload.size();
  const FrameBytes header = encode(frame);
  std::array<iovec, 2> parts{as_iovec(header), as_iovec(payload)};
  send_some(connection.fd.get(), parts);
}

std::vector<Connection> meet(const Meeting& meeting) {
  return Host(meeting).run();
}

}  // namespace horo
