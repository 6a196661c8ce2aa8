// Every rank sends an offer to all lower ranks, which cannot block, and then handles the messages of all peers in the
// order of arrival: it answers the offers of higher ranks and takes the answers of lower ranks. So no two ranks wait
// for each other. The kernel counts the descriptors in flight of all processes of a user against the limit of open
// files. Where there are too many, a rank repeats its offer later; meanwhile every rank receives the descriptors that
// are sent to it, so their number falls. The messages carry the descriptors of the arenas as well. A rank without an
// arena still shares the segments.
#include "ring/bootstrap/shm_handover.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "horo/base/error.h"
#include "horo/base/log.h"
#include "horo/base/say.h"
#include "ring/bootstrap/start_abort.h"
#include "ring/transport/stream.h"

namespace horo {
namespace {

// An offer with the segment, or the answer that it is mapped; the sender's arena may come with either.
constexpr char kHere = '+';
constexpr char kNothing = '-';  // there is no segment: the pair uses the socket alone

constexpr std::size_t kMostFiles = 2;  // the segment of the pair and an arena

constexpr std::size_t kControlBytes = 256 << 10;  // of the ring in each direction

// With Config::transport "auto" a pair without shared memory is better than a start that is later than this.
constexpr std::chrono::seconds kPatienceForAuto{1};

union FileMessage {  // the union gives the bytes the alignment of cmsghdr
  cmsghdr header;
  std::array<char, CMSG_SPACE(kMostFiles * sizeof(int))> bytes;
};

// Returns 0 or the errno of sendmsg.
int send_answer(int socket, char answer, const std::vector<int>& files) {
  iovec part{&answer, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  FileMessage extra{};
  if (!files.empty()) {
    const std::size_t bytes = files.size() * sizeof(int);
    message.msg_control = &extra;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), files.data(), bytes);
  }
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 ? 0 : errno;
}

// Owns all descriptors of the message, also those beyond the expected number.
std::vector<Fd> files_in(const msghdr& message) {
  std::vector<Fd> files;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);  // the buffer has room for one
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) return files;
  for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
    int file = -1;
    std::memcpy(&file, reinterpret_cast<const char*>(header) + at, sizeof(int));
    files.emplace_back(file);
  }
  return files;
}

struct Answer {
  char text = kNothing;
  std::vector<Fd> files;
};

class Handover {
 public:
  Handover(const Config& config, const Identity& self, std::vector<Connection>& connections, TimePoint deadline,
           const ShmArenas* before)
      : config_(config),
        self_(self),
        connections_(connections),
        deadline_(deadline),
        offer_until_(end_of_offers()),
        before_(before) {
    for (Connection& connection : connections) {
      if (!peer_user(connection.fd.get())) continue;
      (connection.peer < self.rank ? to_offer_ : awaited_).push_back(&connection);
    }
  }

  std::shared_ptr<Arena> run() {
    try {
      if (!to_offer_.empty() || !awaited_.empty()) make_arena();
      while (!to_offer_.empty() || !awaited_.empty()) {
        while (!to_offer_.empty() && offer(*to_offer_.back())) to_offer_.pop_back();
        handle_messages();
      }
    } catch (const PeerLost& lost) {
      for (Connection& connection : connections_) notify(connection, {lost.origin(), lost.what()});
      throw;
    }
    return arena_;
  }

 private:
  // Sends the reason of the failure, so that no rank names a rank that only gave up. A peer reads its socket until it
  // shares memory, and its memory from then on; where it may be at either, it gets the notice twice.
  void notify(Connection& connection, const AbortNotice& notice) const {
    const auto is_it = [&connection](const Connection* one) { return one == &connection; };
    const bool is_open =
        std::any_of(awaited_.begin(), awaited_.end(), is_it) || std::any_of(to_offer_.begin(), to_offer_.end(), is_it);
    if (is_open || !connection.memory) send_abort(connection, self_, notice);
    if (!connection.memory) return;
    const auto message = abort_message(self_, notice);
    iovec part = as_iovec(message);
    make_shm_stream(std::move(connection.fd), std::move(*connection.memory), self_.rank > connection.peer,
                    config_.shm_chunk_bytes)
        ->send({&part, 1});
  }

  void make_arena() {
    try {
      arena_ = before_ != nullptr ? before_->own() : Arena::make();
    } catch (const std::exception& error) {
      log_warning(say("rank ", self_.rank, " has no shared memory for buckets: ", error.what()));
    }
  }

  // Offers end early enough that the answer "no segment" reaches the peer in time.
  TimePoint end_of_offers() const {
    const TimePoint now = Clock::now();
    const Duration half = (deadline_ - now) / 2;
    return now + (config_.transport == "shm" ? half : std::min<Duration>(half, kPatienceForAuto));
  }

  std::size_t ring_bytes(const Connection& connection) const {
    if (connection.purpose == Purpose::kControl) return kControlBytes;
    return config_.shm_chunk_bytes * config_.shm_slots;
  }

  bool offers_arena(const Connection& connection) const { return arena_ && connection.purpose == Purpose::kData; }

  // False: the kernel has too many descriptors in flight, and the offer has to be repeated.
  bool offer(Connection& connection) {
    try {
      if (!connection.memory) connection.memory = ShmSegment::create(shm_stream_bytes(ring_bytes(connection)));
      std::vector<int> files{connection.memory->file()};
      if (offers_arena(connection)) files.push_back(arena_->segment().file());
      const int error = send_answer(connection.fd.get(), kHere, files);
      if (error == ETOOMANYREFS && Clock::now() < offer_until_) return false;
      if (error == ETOOMANYREFS) {
        throw std::system_error(error, std::generic_category(),
                                "too many descriptors of this user are in flight between processes for its limit of "
                                "open files (ulimit -n)");
      }
      if (error != 0) throw std::system_error(error, std::generic_category(), "it cannot be handed over (sendmsg)");
      connection.memory->close_file();
      awaited_.push_back(&connection);
    } catch (const std::exception& error) {
      refuse(connection, error.what());
    }
    return true;
  }

  // Handles the messages that have arrived; the handover with their senders is complete then. Returns after kWaitSlice
  // at the latest.
  void handle_messages() {
    std::vector<pollfd> polls;
    for (const Connection* one : awaited_) polls.push_back({one->fd.get(), POLLIN, 0});
    ::poll(polls.data(), polls.size(), static_cast<int>(kWaitSlice.count()));
    std::vector<Connection*> waiting;
    for (std::size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].revents == 0) {
        waiting.push_back(awaited_[i]);
      } else if (awaited_[i]->peer < self_.rank) {
        expect_accepted(*awaited_[i]);
      } else {
        accept(*awaited_[i]);
      }
    }
    awaited_ = std::move(waiting);
    if (!awaited_.empty() && Clock::now() >= deadline_) throw_late(*awaited_.front());
  }

  void accept(Connection& connection) {
    Answer answer = next_answer(connection);
    if (answer.text != kHere) return go_without(connection, "it could not create a segment, as its own message says");
    try {
      if (answer.files.empty()) throw ProtocolError("no descriptor came with it");
      ShmSegment segment = ShmSegment::map(std::move(answer.files.front()), shm_stream_bytes(1));
      segment.close_file();
      connection.memory = std::move(segment);
    } catch (const std::exception& error) {
      return refuse(connection, error.what());
    }
    if (answer.files.size() == kMostFiles) map_arena(connection, std::move(answer.files.back()));
    const bool is_sent =
        offers_arena(connection) && send_answer(connection.fd.get(), kHere, {arena_->segment().file()}) == 0;
    if (!is_sent && send_answer(connection.fd.get(), kHere, {}) != 0) throw_ended(connection);
  }

  void expect_accepted(Connection& connection) {
    Answer answer = next_answer(connection);
    if (answer.text == kHere) {
      if (!answer.files.empty()) map_arena(connection, std::move(answer.files.front()));
      return;
    }
    connection.memory.reset();
    go_without(connection, "it could not map it, as its own message says");
  }

  void map_arena(Connection& connection, Fd file) const {
    try {
      if (before_ != nullptr) connection.arena = before_->mapping_of(file);
      if (connection.arena) return;
      const auto arena = std::make_shared<ShmSegment>(ShmSegment::map_empty(std::move(file)));
      arena->close_file();
      connection.arena = arena;
    } catch (const std::exception& error) {
      log_warning(say("rank ", self_.rank, " cannot map the buckets of ", connection.name, ": ", error.what()));
    }
  }

  void refuse(Connection& connection, const std::string& why) {
    connection.memory.reset();
    if (send_answer(connection.fd.get(), kNothing, {}) != 0) throw_ended(connection);
    go_without(connection, why);
  }

  void go_without(const Connection& connection, const std::string& why) const {
    const std::string text = say("rank ", self_.rank, " shares no memory with ", connection.name, ": ", why);
    if (config_.transport != "shm") return log_warning(text + "; their bytes go over a Unix socket");
    throw std::invalid_argument(say("HORO_TRANSPORT=shm: ", text, ". HORO_TRANSPORT=auto or tcp does not need it"));
  }

  [[noreturn]] void throw_late(const Connection& connection) const {
    throw PeerLost(connection.peer,
                   say("rank ", self_.rank, ": ", connection.name, " did not answer about shared memory within ",
                       config_.start_timeout.count(), " ms (HORO_START_TIMEOUT_MS)"));
  }

  // A peer whose start has failed may have sent the reason.
  void throw_if_aborted(const Connection& connection) const {
    const auto notice = peek_abort(connection.fd.get());
    if (notice && notice->origin < self_.size) throw PeerLost(notice->origin, notice->reason);
  }

  [[noreturn]] void throw_ended(const Connection& connection) const {
    throw_if_aborted(connection);
    throw PeerLost(connection.peer, say(connection.name, " is lost: it ended while the ranks were still connecting ",
                                        "(connection closed, seen by rank ", self_.rank, ")"));
  }

  Answer next_answer(const Connection& connection) const {
    char text = 0;
    iovec part{&text, 1};
    FileMessage extra{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = &extra;
    message.msg_controllen = sizeof(extra.bytes);
    throw_if_aborted(connection);
    if (::recvmsg(connection.fd.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1) throw_ended(connection);
    Answer answer{text, files_in(message)};
    if (text == kHere || text == kNothing) return answer;
    throw PeerLost(connection.peer,
                   say("rank ", self_.rank, ": ", connection.name, " sent an unknown answer about shared memory"));
  }

  const Config& config_;
  const Identity& self_;
  std::vector<Connection>& connections_;
  const TimePoint deadline_;
  const TimePoint offer_until_;
  std::vector<Connection*> to_offer_;  // to lower ranks
  std::vector<Connection*> awaited_;   // peers that have to send an offer or an answer
  const ShmArenas* const before_;      // null: none
  std::shared_ptr<Arena> arena_;       // this rank's own
};

}  // namespace

std::shared_ptr<Arena> share_memory(const Config& config, const Identity& self, std::vector<Connection>& connections,
                                    TimePoint deadline, const ShmArenas* before) {
  return Handover(config, self, connections, deadline, before).run();
}

}  // namespace horo
