// Messages of a pair meet in the order in which they were posted, and are copied when both sides are there: a send ends
// when its receive has it, as MPI_Issend's do.
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
#include "ring/reduce/reduce.h"

namespace horo::test {

class FakeMpi;

namespace {

constexpr int kTruncated = 1, kTooMany = 2;

}  // namespace

struct FakeMessage {
  enum class Kind { kSend, kReceive, kMeeting, kSum };
  FakeMpi* mpi;
  Kind kind;
  int rank;
  int peer;
  const std::byte* from = nullptr;
  std::byte* into = nullptr;
  int bytes = 0;
  int error = 0;
  bool has_ended = false;
  MpiReduction reduction{};  // of kSum: `bytes` is the number of elements
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

  // Ends when all are in it.
  MpiRequest meet(int rank) {
    MutexLock lock(mutex_);
    if (rank != options_.stays_away) ++met_;
    return add({this, FakeMessage::Kind::kMeeting, rank, rank});
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

  // The n-th ones of all ranks meet.
  int sum(const FakeMessage& mine, MpiRequest* request) {
    MutexLock lock(mutex_);
    *request = add(mine);
    auto& together = sums_[sums_begun_[mine.rank]++];
    together.push_back(messages_.back().get());
    if (static_cast<int>(together.size()) < options_.size || !ends_sums()) return 0;
    ++sums_ended_;
    add_up(together);
    return 0;
  }

  int sums() const {
    MutexLock lock(mutex_);
    return sums_ended_;
  }

  int test(MpiRequest* request, bool* done, int* bytes) {
    MutexLock lock(mutex_);
    const auto found = find(*request);
    FakeMessage& message = **found;
    const bool fails = message.kind == FakeMessage::Kind::kSum && message.rank == options_.fails_sums;
    if (fails && static_cast<int>(sums_[0].size()) == options_.size) return kTooMany;
    const bool all_met = message.kind == FakeMessage::Kind::kMeeting && met_ > 0 && met_ % options_.size == 0;
    *done = message.has_ended || all_met;
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

  bool ends_sums() const { return options_.ends_sums && options_.fails_sums < 0; }

  // From the last rank to the first, which is nobody's canonical order.
  static void add_up(std::vector<FakeMessage*>& together) {
    const MpiReduction& reduction = together.front()->reduction;
    const auto count = static_cast<std::size_t>(together.front()->bytes);
    std::sort(together.begin(), together.end(), [](const auto* a, const auto* b) { return a->rank > b->rank; });
    std::vector<TreeStep> tree;
    std::vector<TreeInput> inputs;
    for (FakeMessage* one : together) {
      tree.push_back({static_cast<int>(inputs.size())});
      if (!inputs.empty()) tree.push_back({TreeStep::kJoin});
      inputs.push_back({one->into, true});
      if (one->bytes != together.front()->bytes) one->error = kTruncated;
    }
    std::vector<std::byte> sum(count * size_of(reduction.dtype));
    reduce_tree({reduction.dtype, reduction.op, {}, true, nullptr}, tree, inputs, sum.data(), count);
    for (FakeMessage* one : together) {
      std::memcpy(one->into, sum.data(), sum.size());
      one->has_ended = true;
    }
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
  std::map<std::pair<int, int>, std::deque<FakeMessage*>> waiting_ GUARDED_BY(mutex_);  // by who sends to whom
  std::map<int, int> sums_begun_ GUARDED_BY(mutex_);                                    // by rank
  std::map<int, std::vector<FakeMessage*>> sums_ GUARDED_BY(mutex_);                    // by number
  int sums_ended_ GUARDED_BY(mutex_) = 0;
  int met_ GUARDED_BY(mutex_) = 0;
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
  *request = this_player().mpi->meet(this_player().rank);
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

int all_reduce(MpiComm comm, const MpiReduction& reduction, void* in_out, int elements, MpiRequest* request) {
  const auto [mpi, rank] = comm_at(comm);
  FakeMessage mine{mpi, FakeMessage::Kind::kSum, rank, rank, nullptr, static_cast<std::byte*>(in_out), elements};
  mine.reduction = reduction;
  return mpi->sum(mine, request);
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
  static constexpr MpiApi api = {kMpiApiVersion, library, start,  duplicate, free_comm,  send,   receive,
                                 all_reduce,     test,    cancel, progress,  error_text, give_up};
  return api;
}

void play_mpi_rank(std::shared_ptr<FakeMpi> mpi, int rank) {
  this_player() = {std::move(mpi), rank};
}

std::string take_given_up() {
  MutexLock lock(given_up().mutex);
  return std::exchange(given_up().why, {});
}

int sums_of(const FakeMpi& mpi) {
  return mpi.sums();
}

std::size_t open_requests(const FakeMpi& mpi) {
  return mpi.open();
}

}  // namespace horo::test
