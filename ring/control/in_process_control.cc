// The control link between threads: one inbox per rank, behind a lock that all of them share. The same star: ranks talk
// to rank 0 alone, and what rank 0 learns of a loss reaches the others.

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

class Switchboard {
 public:
  explicit Switchboard(int size) : ranks_(static_cast<std::size_t>(size)) {}

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
    while (at(rank).inbox.empty() && !at(rank).is_woken && Clock::now() < until) sleep(until);
    at(rank).is_woken = false;
    for (const ControlEvent& event : at(rank).inbox) {
      if (event.kind == Kind::kBeat && event.wants_answer) deliver(event.from, {.kind = Kind::kBeat, .from = rank});
    }
    return std::exchange(at(rank).inbox, {});
  }

  void wake(int rank) {
    MutexLock lock(mutex_);
    at(rank).is_woken = true;
    changed_.notify_all();
  }

  void abort(int from, int origin, const std::string& reason) {
    MutexLock lock(mutex_);
    lose_all(from, origin, reason);
  }

  void goodbye(int rank) {
    MutexLock lock(mutex_);
    if (std::exchange(at(rank).said_goodbye, true)) return;
    for (const int peer : peers_of(rank)) deliver(peer, {.kind = Kind::kLeft, .from = rank});
  }

  void close(int rank) {
    MutexLock lock(mutex_);
    at(rank).has_left = true;
    if (!at(rank).said_goodbye) lose_all(rank, rank, say("rank ", rank, " broke off without a goodbye"));
  }

 private:
  struct Rank {
    std::vector<ControlEvent> inbox;
    bool is_woken = false;
    bool is_lost = false;  // its kLost was delivered
    bool said_goodbye = false;
    bool has_left = false;
  };

  Rank& at(int rank) REQUIRES(mutex_) { return ranks_[static_cast<std::size_t>(rank)]; }

  // wait_until with the end of time would overflow inside the library.
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
    at(to).inbox.push_back(std::move(event));
    changed_.notify_all();
  }

  // To everybody but `from`: rank 0 passes on what reaches it, unless it is gone itself.
  void lose_all(int from, int origin, const std::string& reason) REQUIRES(mutex_) {
    const bool passed_on = from == 0 || !(at(0).has_left || at(0).said_goodbye);
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      if (rank == from || (rank != 0 && !passed_on)) continue;
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
  InProcessControl(std::shared_ptr<Switchboard> board, int rank) : board_(std::move(board)), rank_(rank) {}
  ~InProcessControl() override { board_->close(rank_); }

  void send(int to, std::vector<std::byte> bytes) override { board_->send(rank_, to, std::move(bytes)); }
  void beat(bool wants_answer) override { board_->beat(rank_, wants_answer); }
  void suspect(int about, Evidence evidence, const std::string& reason) override {
    board_->suspect(rank_, {.kind = Kind::kSuspicion, .reason = reason, .about = about, .evidence = evidence});
  }
  std::vector<ControlEvent> wait(TimePoint until) override { return board_->wait(rank_, until); }
  void wake() noexcept override { board_->wake(rank_); }
  void abort(int origin, const std::string& reason) noexcept override {
    try {
      board_->abort(rank_, origin, reason);
    } catch (const std::bad_alloc&) {
      log_warning("no memory to tell the other ranks why");
    }
  }
  void goodbye(Duration /*patience*/) noexcept override {
    try {
      board_->goodbye(rank_);
    } catch (const std::bad_alloc&) {
      log_warning("no memory to say goodbye to the other ranks");
    }
  }

 private:
  std::shared_ptr<Switchboard> board_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<ControlLink>> make_in_process_control_links(int size) {
  const auto board = std::make_shared<Switchboard>(size);
  std::vector<std::unique_ptr<ControlLink>> links;
  for (int rank = 0; rank < size; ++rank) links.push_back(std::make_unique<InProcessControl>(board, rank));
  return links;
}

}  // namespace horo
