// The control link of ranks that are threads: one event queue per rank, behind a lock that all ranks share. The
// topology is the same star: ranks send to rank 0 alone, and rank 0 forwards losses to the others.

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "horo/base/check.h"
#include "horo/base/log.h"
#include "horo/base/mutex.h"
#include "horo/base/say.h"
#include "ring/control_link.h"

namespace horo {
namespace {

using Kind = ControlEvent::Kind;

class SharedQueues {
 public:
  explicit SharedQueues(int size) : ranks_(static_cast<std::size_t>(size)) {}

  void send(int from, int to, std::vector<std::byte> bytes) {
    MutexLock lock(mutex_);
    HORO_CHECK(to != from && (to == 0 || from == 0));
    if (at(to).has_left) return;
    deliver(to, {.kind = Kind::kMessage, .from = from, .bytes = std::move(bytes)});
  }

  void beat(int from, bool wants_answer) {
    MutexLock lock(mutex_);
    for (const int peer : peers_of(from)) {
      if (at(peer).has_left) continue;
      deliver(peer, {.kind = Kind::kBeat, .from = from, .wants_answer = wants_answer});
    }
  }

  void suspect(int from, ControlEvent suspicion) {
    MutexLock lock(mutex_);
    HORO_CHECK(from != 0);
    suspicion.from = from;
    if (!at(0).has_left) deliver(0, std::move(suspicion));
  }

  std::vector<ControlEvent> wait(int rank, TimePoint until) {
    MutexLock lock(mutex_);
    while (at(rank).events.empty() && !at(rank).is_woken && Clock::now() < until) sleep(until);
    at(rank).is_woken = false;
    for (const ControlEvent& event : at(rank).events) {
      if (event.kind == Kind::kBeat && event.wants_answer) deliver(event.from, {.kind = Kind::kBeat, .from = rank});
    }
    return std::exchange(at(rank).events, {});
  }

  void wake(int rank) {
    MutexLock lock(mutex_);
    at(rank).is_woken = true;
    changed_.notify_all();
  }

  void abort(int from, int origin, const std::string& reason) {
    MutexLock lock(mutex_);
    deliver_loss(from, origin, reason);
  }

  void goodbye(int rank) {
    MutexLock lock(mutex_);
    if (std::exchange(at(rank).said_goodbye, true)) return;
    for (const int peer : peers_of(rank)) deliver(peer, {.kind = Kind::kLeft, .from = rank});
  }

  void close(int rank) {
    MutexLock lock(mutex_);
    at(rank).has_left = true;
    if (!at(rank).said_goodbye) deliver_loss(rank, rank, say("rank ", rank, " broke off without a goodbye"));
  }

 private:
  struct Rank {
    std::vector<ControlEvent> events;
    bool is_woken = false;
    bool is_lost = false;  // kLost was delivered to it
    bool said_goodbye = false;
    bool has_left = false;
  };

  Rank& at(int rank) REQUIRES(mutex_) { return ranks_[static_cast<std::size_t>(rank)]; }

  // wait_until(TimePoint::max()) overflows inside the library.
  void sleep(TimePoint until) REQUIRES(mutex_) {
    const TimePoint slice = Clock::now() + std::chrono::minutes(1);
    changed_.wait_until(mutex_, std::min(until, slice));
  }

  std::vector<int> peers_of(int rank) REQUIRES(mutex_) {
    if (rank != 0) return {0};
    std::vector<int> peers;
    for (int peer = 1; peer < static_cast<int>(ranks_.size()); ++peer) peers.push_back(peer);
    return peers;
  }

  void deliver(int to, ControlEvent event) REQUIRES(mutex_) {
    at(to).events.push_back(std::move(event));
    changed_.notify_all();
  }

  // Delivers the loss to every rank but `from`; through rank 0, unless rank 0 has left.
  void deliver_loss(int from, int origin, const std::string& reason) REQUIRES(mutex_) {
    const bool is_forwarded = from == 0 || !(at(0).has_left || at(0).said_goodbye);
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      if (rank == from || (rank != 0 && !is_forwarded)) continue;
      if (!std::exchange(at(rank).is_lost, true)) {
        deliver(rank, {.kind = Kind::kLost, .from = origin, .reason = reason});
      }
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<Rank> ranks_ GUARDED_BY(mutex_);
};

class InProcessControl final : public ControlLink {
 public:
  InProcessControl(std::shared_ptr<SharedQueues> queues, int rank) : queues_(std::move(queues)), rank_(rank) {}
  ~InProcessControl() override { queues_->close(rank_); }

  void send(int to, std::vector<std::byte> bytes) override { queues_->send(rank_, to, std::move(bytes)); }
  void beat(bool wants_answer) override { queues_->beat(rank_, wants_answer); }
  void suspect(int about, Evidence evidence, const std::string& reason) override {
    queues_->suspect(rank_, {.kind = Kind::kSuspicion, .reason = reason, .about = about, .evidence = evidence});
  }
  Duration way_to(int) const override { return Duration::zero(); }
  void watch(int) override {}  // threads of a process have no launcher
  std::vector<ControlEvent> wait(TimePoint until) override { return queues_->wait(rank_, until); }
  void wake() noexcept override { queues_->wake(rank_); }
  void abort(int origin, const std::string& reason) noexcept override {
    try {
      queues_->abort(rank_, origin, reason);
    } catch (const std::bad_alloc&) {
      log_warning("no memory to send the other ranks the reason");
    }
  }
  void goodbye(Duration /*patience*/) noexcept override {
    try {
      queues_->goodbye(rank_);
    } catch (const std::bad_alloc&) {
      log_warning("no memory to say goodbye to the other ranks");
    }
  }

 private:
  std::shared_ptr<SharedQueues> queues_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<ControlLink>> make_in_process_control_links(int size) {
  const auto queues = std::make_shared<SharedQueues>(size);
  std::vector<std::unique_ptr<ControlLink>> links;
  for (int rank = 0; rank < size; ++rank) links.push_back(std::make_unique<InProcessControl>(queues, rank));
  return links;
}

}  // namespace horo
