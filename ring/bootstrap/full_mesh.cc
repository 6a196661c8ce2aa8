// One poll loop carries all handshakes, dialed and accepted, each with its own deadline, so no peer can delay another.
// The loop also watches the processes of the ranks that are still missing and the connections of the ranks that are
// authenticated, so that a start that cannot succeed ends at once.

#include "ring/bootstrap/full_mesh.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <set>
#include <system_error>

#include "horo/base/error.h"
#include "horo/base/log.h"
#include "horo/base/say.h"
#include "ring/bootstrap/pending_accepts.h"
#include "ring/bootstrap/pending_connection.h"
#include "ring/bootstrap/poll_set.h"
#include "ring/bootstrap/start_abort.h"

namespace horo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstBackOff{1};
constexpr milliseconds kLastBackOff{100};
// A listener whose queue is full drops the request to connect, and the kernel repeats it only after a second.
constexpr milliseconds kFirstConnectPatience{250};
constexpr milliseconds kNotifyPatience{2'000};

// The dialing of one target: an attempt in progress, or the time of the next one.
struct Dialing {
  const DialTarget* target = nullptr;
  std::unique_ptr<PendingConnection> pending;
  TimePoint next_attempt = TimePoint::min();
  milliseconds back_off = kFirstBackOff;
  Duration connect_patience = kFirstConnectPatience;
  std::size_t next_address = 0;
  bool is_done = false;
  std::string last_error;
  std::string last_answer;  // the last error of an attempt in which the target answered

  const Address& address(std::size_t attempt) const { return target->addresses[attempt % target->addresses.size()]; }
};

class MeshConnector {
 public:
  explicit MeshConnector(const FullMesh& mesh)
      : mesh_(mesh),
        missing_(mesh.dialers),
        accepts_(mesh.self, mesh.hello_timeout, [this](PendingConnection& pending) { admit(pending); }) {
    for (const DialTarget& target : mesh.targets) {
      dialings_.emplace_back();
      dialings_.back().target = &target;
    }
  }

  std::vector<Connection> run() {
    while (!is_complete()) {
      const TimePoint now = Clock::now();
      if (failure_ && now >= notify_until_) break;
      if (is_cancelled()) throw PeerLost(-1, kCancelledText);
      if (!failure_ && now >= mesh_.deadline) throw_missing();
      for (Dialing& dialing : dialings_) start_attempt(dialing, now);
      drop_late(now);
      poll_once(now);
    }
    if (accepts_.dropped() > 0) log_warning(dropped_text());
    if (failure_) throw PeerLost(*failure_);
    return std::move(connected_);
  }

 private:
  bool is_complete() const {
    return missing_.empty() &&
           std::all_of(dialings_.begin(), dialings_.end(), [](const Dialing& one) { return one.is_done; });
  }

  bool is_cancelled() {
    try {
      return mesh_.is_cancelled && mesh_.is_cancelled();
    } catch (const PeerLost& lost) {
      fail(lost.origin(), lost.what());
      return false;
    }
  }

  // One round: waits for the next event, then handles dialed and accepted handshakes, peers that ended, and listeners.
  void poll_once(TimePoint now) {
    PollSet polls;
    for (Dialing& dialing : dialings_) {
      if (!dialing.pending) continue;
      polls.add(dialing.pending->fd(), dialing.pending->events(), [this, &dialing] { advance(dialing); });
    }
    accepts_.add_to(polls);
    if (!failure_) add_peer_ends(polls);
    for (const int listener : {mesh_.listener, mesh_.local_listener}) {
      polls.add(listener, POLLIN, [this, listener] { accepts_.accept_all(listener); });
    }
    polls.poll_once(next_event(now) - Clock::now());
  }

  // The connections that may close, and the processes that may end, before the mesh is complete.
  void add_peer_ends(PollSet& polls) {
    for (std::size_t i = 0; i < connected_.size(); ++i) {
      const int fd = connected_[i].fd.get();
      if (!closed_.contains(fd)) polls.add(fd, POLLRDHUP, [this, i] { on_close(connected_[i]); });
    }
    for (const Watched& one : mesh_.watched) {
      if (is_awaited(one.rank)) polls.add(one.fd.get(), POLLIN, [this, rank = one.rank] { on_process_end(rank); });
    }
  }

  TimePoint next_event(TimePoint now) const {
    TimePoint next = accepts_.next_deadline(std::min<TimePoint>(mesh_.deadline, now + mesh_.longest_poll));
    for (const Dialing& one : dialings_) {
      if (!one.is_done) next = std::min(next, one.pending ? one.pending->deadline() : one.next_attempt);
    }
    return next;
  }

  void start_attempt(Dialing& dialing, TimePoint now) {
    if (dialing.is_done || dialing.pending || now < dialing.next_attempt) return;
    Fd fd = dial(dialing.address(dialing.next_address++));
    if (!fd.is_open()) return end_attempt(dialing, std::generic_category().message(errno));
    const DialTarget& target = *dialing.target;
    dialing.pending = std::make_unique<PendingConnection>(
        std::move(fd), Handshake::dialing(mesh_.self, target.rank, target.purpose, target.number), mesh_.hello_timeout,
        now + dialing.connect_patience);
    dialing.connect_patience = std::min<Duration>(dialing.connect_patience * 2, mesh_.hello_timeout);
  }

  void end_attempt(Dialing& dialing, const std::string& why) {
    dialing.last_error = to_text(dialing.address(dialing.next_address - 1)) + ": " + why;
    if (dialing.pending && dialing.pending->is_answered()) dialing.last_answer = dialing.last_error;
    dialing.pending.reset();
    dialing.next_attempt = Clock::now() + dialing.back_off;
    dialing.back_off = std::min(dialing.back_off * 2, kLastBackOff);
  }

  void drop_late(TimePoint now) {
    for (Dialing& one : dialings_) {
      if (!one.pending || now < one.pending->deadline()) continue;
      if (one.pending->is_connected()) advance(one);  // the answer may be there, and this process late
      if (!one.pending) continue;
      end_attempt(one, one.pending->is_connected() ? "no answer within the hello timeout (HORO_HELLO_TIMEOUT_MS)"
                                                   : "it does not accept the connection");
    }
    accepts_.drop_late(now);
  }

  void advance(Dialing& dialing) {
    if (const std::string foreign = foreign_user(dialing.pending->fd()); !foreign.empty()) {
      return end_attempt(dialing, foreign);
    }
    try {
      dialing.pending->advance();
      if (!dialing.pending->is_done()) return;
      add(dialing.pending->take_connection());
      dialing.pending.reset();
      dialing.is_done = true;
    } catch (const ProtocolError& error) {
      end_attempt(dialing, error.what());
    }
  }

  // The peer of an accepted connection has proved its identity. Throws ProtocolError if it is not expected.
  void admit(PendingConnection& pending) {
    const Handshake& peer = pending.handshake();
    const auto expected = std::find_if(missing_.begin(), missing_.end(), [&](const Dialer& one) {
      return one.rank == peer.peer() && one.purpose == peer.purpose() && one.number == peer.number();
    });
    if (expected == missing_.end()) throw ProtocolError(say("rank ", peer.peer(), " connected and was not expected"));
    pending.admit();
    missing_.erase(expected);
    add(pending.take_connection());
  }

  void add(Connection connection) {
    connection.name = name_of(connection.peer);
    if (failure_) send_abort(connection, mesh_.self, {failure_->origin(), failure_->what()});
    connected_.push_back(std::move(connection));
  }

  std::string name_of(int rank) const {
    return mesh_.names.empty() ? say("rank ", rank) : mesh_.names[static_cast<std::size_t>(rank)];
  }

  bool is_awaited(int rank) const {
    const auto dials = [rank](const Dialer& one) { return one.rank == rank; };
    const auto is_dialed = [rank](const Dialing& one) { return !one.is_done && one.target->rank == rank; };
    return std::any_of(missing_.begin(), missing_.end(), dials) ||
           std::any_of(dialings_.begin(), dialings_.end(), is_dialed);
  }

  // An authenticated peer has closed its connection, possibly after an abort notice. That is a failure of the start
  // only while one of its connections, or the rank that its notice names, is still missing; otherwise the peer may have
  // finished its work, and the owner of the connection finds its end.
  void on_close(const Connection& connection) {
    closed_.insert(connection.fd.get());
    const auto notice = peek_abort(connection.fd.get());
    if (notice && is_awaited(notice->origin)) return fail(notice->origin, notice->reason);
    if (is_awaited(connection.peer)) fail_by_end(connection.peer, "it", "connection closed, ");
  }

  void on_process_end(int rank) { fail_by_end(rank, "its process", ""); }

  void fail_by_end(int rank, const char* subject, const char* evidence) {
    fail(rank, say(name_of(rank), " is lost: ", subject, " ended while the ranks were still connecting (", evidence,
                   "seen by rank ", mesh_.self.rank, ")"));
  }

  // The start has failed. Connected ranks, and ranks that connect within kNotifyPatience, receive the reason.
  void fail(int rank, const std::string& why) {
    if (failure_) return;
    failure_.emplace(rank, why);
    notify_until_ = std::min<TimePoint>(mesh_.deadline, Clock::now() + kNotifyPatience);
    for (const Connection& connection : connected_) send_abort(connection, mesh_.self, {rank, why});
    std::erase_if(missing_, [rank](const Dialer& one) { return one.rank == rank; });
    for (Dialing& one : dialings_) {
      if (one.target->rank == rank) one.is_done = true;
    }
  }

  // Connected ranks receive the reason, so that the error of every rank names the missing ranks.
  [[noreturn]] void throw_missing() {
    std::vector<int> ranks;
    std::string details;
    for (const Dialer& one : missing_) ranks.push_back(one.rank);
    for (const Dialing& one : dialings_) {
      if (one.is_done) continue;
      ranks.push_back(one.target->rank);
      if (!one.last_error.empty()) details = "; last error: " + one.last_error;
      if (!one.last_answer.empty() && one.last_answer != one.last_error) details += "; before it: " + one.last_answer;
    }
    if (accepts_.dropped() > 0) details += "; " + dropped_text();
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    const std::string why =
        say("rank ", mesh_.self.rank, ": ", say_ranks(ranks), " did not connect ", mesh_.timeout_text, details);
    for (const Connection& connection : connected_) send_abort(connection, mesh_.self, {ranks.front(), why});
    throw PeerLost(ranks.front(), why);
  }

  std::string dropped_text() const {
    return say("unauthenticated connections dropped: ", accepts_.dropped(), ", by rank ", mesh_.self.rank, " at ",
               to_text(local_address(mesh_.listener)), " during the start; the first ", accepts_.first_dropped());
  }

  const FullMesh& mesh_;
  std::vector<Dialer> missing_;
  std::vector<Dialing> dialings_;
  PendingAccepts accepts_;
  std::vector<Connection> connected_;
  std::set<int> closed_;  // descriptors in connected_ that the peer has closed
  std::optional<PeerLost> failure_;
  TimePoint notify_until_{};
};

}  // namespace

std::vector<Connection> connect_mesh(const FullMesh& mesh) {
  return MeshConnector(mesh).run();
}

}  // namespace horo
