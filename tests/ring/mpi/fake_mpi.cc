// Messages of a pair of ranks match in the order of posting and are copied when both sides are posted: a send ends when
// its receive has the bytes, as with MPI_Issend.
#include "tests/ring/mpi/fake_mpi.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "horo/base/check.h"
#include "horo/base/mutex.h"

namespace horo::test {

class FakeMpi;

namespace {

constexpr int kTruncated = 1, kTooMany = 2;

}  // namespace

struct FakeMessage {
  enum class Kind { kSend, kReceive, kDuplicate };
  FakeMpi* mpi;
  Kind kind;
  int rank;
  int peer;
  const std::byte* from = nullptr;
  std::byte* into = nullptr;
  int bytes = 0;
  int error = 0;
  bool has_ended = false;
};

struct FakeComm {
  FakeMpi* mpi;
  int rank;
};

class FakeMpi {
 public:
  explicit FakeMpi(const FakeMpiOptions& options) : options_(options) {}

  MpiPlace place(int rank) const {
    return {rank, options_.claimed_size != 0 ? options_.claimed_size : options_.size, options_.threads,
            options_.was_ended};
  }

  MpiComm comm_of(int rank) {
    MutexLock lock(mutex_);
    comms_.push_back(std::make_unique<FakeComm>(FakeComm{this, rank}));
    return comms_.back().get();
  }

  // Ends when all ranks have called it.
  MpiRequest duplicate(int rank) {
    MutexLock lock(mutex_);
    if (rank != options_.stays_away) ++duplicating_;
    return add({this, FakeMessage::Kind::kDuplicate, rank, rank});
  }

  int post(FakeMessage message, MpiRequest* request) {
    MutexLock lock(mutex_);
    if (message.kind == FakeMessage::Kind::kSend && ++sent_ > options_.most_messages) return kTooMany;
    *request = add(message);
    FakeMessage* const mine = messages_.back().get();
    const bool sends = mine->kind == FakeMessage::Kind::kSend;
    auto& waiting = waiting_[sends ? std::pair(mine->rank, mine->peer) : std::pair(mine->peer, mine->rank)];
    if (waiting.empty() || (waiting.front()->kind == FakeMessage::Kind::kSend) == sends) {
      waiting.push_back(mine);
      return 0;
    }
    FakeMessage* const other = waiting.front();
    waiting.pop_front();
    sends ? give(*mine, *other) : give(*other, *mine);
    return 0;
  }

  int test(MpiRequest* request, bool* done, int* bytes) {
    MutexLock lock(mutex_);
    const auto found = find(*request);
    FakeMessage& message = **found;
    const bool has_all =
        message.kind == FakeMessage::Kind::kDuplicate && duplicating_ > 0 && duplicating_ % options_.size == 0;
    *done = message.has_ended || has_all;
    if (!*done) return 0;
    *bytes = message.bytes;
    const int error = message.error;
    messages_.erase(found);
    *request = nullptr;
    return error;
  }

  void cancel(MpiRequest request) {
    MutexLock lock(mutex_);
    FakeMessage& message = **find(request);
    if (message.has_ended) return;
    message.has_ended = true;
    std::erase(waiting_[{message.peer, message.rank}], &message);
  }

  std::size_t open() const {
    MutexLock lock(mutex_);
    return messages_.size();
  }

 private:
  using Messages = std::vector<std::unique_ptr<FakeMessage>>;

  MpiRequest add(const FakeMessage& message) REQUIRES(mutex_) {
    messages_.push_back(std::make_unique<FakeMessage>(message));
    return messages_.back().get();
  }

  Messages::iterator find(MpiRequest request) REQUIRES(mutex_) {
    const auto found =
        std::find_if(messages_.begin(), messages_.end(), [&](const auto& m) { return m.get() == request; });
    HORO_CHECK(found != messages_.end());
    return found;
  }

  static void give(FakeMessage& send, FakeMessage& receive) {
    send.has_ended = receive.has_ended = true;
    if (send.bytes > receive.bytes) {
      receive.error = kTruncated;
      return;
    }
    std::memcpy(receive.into, send.from, static_cast<std::size_t>(send.bytes));
    receive.bytes = send.bytes;
  }

  const FakeMpiOptions options_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<FakeComm>> comms_ GUARDED_BY(mutex_);
  Messages messages_ GUARDED_BY(mutex_);
  std::map<std::pair<int, int>, std::deque<FakeMessage*>> waiting_ GUARDED_BY(mutex_);  // by sender and receiver
  int duplicating_ GUARDED_BY(mutex_) = 0;
  int sent_ GUARDED_BY(mutex_) = 0;
};

namespace {

struct Player {
  std::shared_ptr<FakeMpi> mpi;
  int rank = 0;
};

Player& this_player() {
  static thread_local Player player;
  return player;
}

struct GivenUp {
  Mutex mutex;
  std::string why GUARDED_BY(mutex);
};

GivenUp& given_up() {
  static GivenUp one;
  return one;
}

FakeComm& comm_at(MpiComm comm) {
  return *static_cast<FakeComm*>(comm);
}

FakeMpi& mpi_of(MpiRequest request) {
  return *static_cast<FakeMessage*>(request)->mpi;
}

const char* library() {
  return "an MPI of threads";
}

int start(MpiPlace* place) {
  *place = this_player().mpi->place(this_player().rank);
  return 0;
}

int duplicate(MpiComm* comm, MpiRequest* request) {
  *comm = this_player().mpi->comm_of(this_player().rank);
  *request = this_player().mpi->duplicate(this_player().rank);
  return 0;
}

void free_comm(MpiComm* comm) {
  *comm = nullptr;
}

int send(MpiComm comm, int peer, const void* from, int bytes, MpiRequest* request) {
  const auto [mpi, rank] = comm_at(comm);
  return mpi->post({mpi, FakeMessage::Kind::kSend, rank, peer, static_cast<const std::byte*>(from), nullptr, bytes},
                   request);
}

int receive(MpiComm comm, int peer, void* into, int bytes, MpiRequest* request) {
  const auto [mpi, rank] = comm_at(comm);
  return mpi->post({mpi, FakeMessage::Kind::kReceive, rank, peer, nullptr, static_cast<std::byte*>(into), bytes},
                   request);
}

int test(MpiRequest* request, bool* done, int* bytes) {
  return mpi_of(*request).test(request, done, bytes);
}

int cancel(MpiRequest* request) {
  mpi_of(*request).cancel(*request);
  return 0;
}

int progress(MpiComm) {
  return 0;
}

void error_text(int error, char* text, std::size_t room) {
  std::snprintf(text, room, "%s", error == kTruncated ? "message truncated" : "too many messages");
}

void give_up(const char* why) {
  MutexLock lock(given_up().mutex);
  if (given_up().why.empty()) given_up().why = why;
}

}  // namespace

std::shared_ptr<FakeMpi> make_fake_mpi(const FakeMpiOptions& options) {
  return std::make_shared<FakeMpi>(options);
}

const MpiApi& fake_mpi_api() {
  static constexpr MpiApi api = {kMpiApiVersion, library, start,  duplicate, free_comm,  send,
                                 receive,        test,    cancel, progress,  error_text, give_up};
  return api;
}

void play_mpi_rank(std::shared_ptr<FakeMpi> mpi, int rank) {
  this_player() = {std::move(mpi), rank};
}

std::string take_given_up() {
  MutexLock lock(given_up().mutex);
  return std::exchange(given_up().why, {});
}

std::size_t open_requests(const FakeMpi& mpi) {
  return mpi.open();
}

}  // namespace horo::test
