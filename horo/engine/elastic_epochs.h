// ElasticEpochs: what the engine does in an elastic job. It freezes the epoch when a rank is lost, and installs the
// next one when the guard's view has come. docs/protocol.md has the protocol.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "elastic/guard_link.h"
#include "horo/base/failure.h"
#include "horo/base/mutex.h"
#include "horo/base/time.h"
#include "horo/engine/epoch_state.h"
#include "horo/engine/views.h"
#include "horo/tensors/item.h"
#include "horo/topology.h"
#include "ring/links.h"

namespace horo {

class Engine;
using FirstLinks = std::function<Links(const IsCancelled& is_cancelled)>;  // those of the first epoch; called once

// The engine's thread, or the one that makes the engine, but for what is said to be for any thread.
class ElasticEpochs {
 public:
  explicit ElasticEpochs(Engine& engine);
  ElasticEpochs(const ElasticEpochs&) = delete;
  ElasticEpochs& operator=(const ElasticEpochs&) = delete;

  // ---- Any thread.

  std::optional<TimePoint> notice();  // see Session::notice
  // Whether this rank waits for a view.
  bool is_frozen() const noexcept { return frozen_; }
  void wake() noexcept {
    if (frozen_) guard_.wake();
  }
  void tell(const MemberMessage& message) noexcept { guard_.send(message); }
  void fail(const std::string& why) noexcept;                   // this rank leaves the job
  std::vector<MemberId> joiners() { return guard_.joiners(); }  // see Session::joiners

  // ---- The first epoch.

  // Blocks until this rank runs in an epoch. Throws PeerLost if it was evicted or the guard has ended. terms: of a
  // process that was started for a job that runs (Config::joins).
  void join(const FirstLinks& first, const std::string& terms);

  // ---- The engine's thread.

  void take_messages();
  void wait_for_view();
  void rank_left(int rank) { left_rank_ = rank; }
  // A rank has left, and this one needs it: the epoch ends.
  void check_left(TimePoint now);
  // No buffer is in use after this, and what is complete here does not change any more. is_own: this rank misses
  // `origin` itself. A report of what another rank told would blame the wrong link.
  void freeze(int origin, const std::string& why, bool is_own) noexcept;
  // A growth is released: all ranks leave the epoch at this place of the stream, and wait for the next one.
  void stop_at_border();
  // The engine has entered an epoch.
  void begin_epoch();
  // Why works of ranks that were lost fail.
  FailurePtr loss(const std::string& text) const;
  // NCCL had an error in this epoch, on this rank.
  void nccl_failed() { has_nccl_error_ = true; }
  bool knows_notice() const { return knows_notice_; }

 private:
  void on_guard_message();
  Topology agree(const std::shared_ptr<EpochState>& next);
  void enter_first(const std::optional<View>& view, const FirstLinks& first);
  void wait_frozen();
  void end() noexcept;
  View next_view();
  void take(const Freeze& freeze);
  void take(const View& view);
  void take(const Settle& settle);
  void take(const Parked& parked);
  void take(const Missed& missed);
  void take(const Evicted& evicted);
  void take(const Drain&) {}  // GuardLink keeps it, and Grow
  void take(const Grow&) {}
  void take(const Ask&);
  void report(std::uint32_t epoch) noexcept;
  void report_frozen(std::uint32_t epoch, const std::string& why, std::optional<MemberId> lost);
  FailurePtr failure_in_freeze() const noexcept;
  void settle(const ProgressOf& progress, const Effects& effects);
  void install(const View& view);
  std::shared_ptr<EpochState> connect(const View& view);

  Engine& engine_;
  bool is_settled_ = false;  // frozen, and the view after the frozen epoch has come
  NextDoor door_;
  std::optional<TimePoint> left_since_;  // a rank has left this epoch, and collectives are in flight
  int left_rank_ = -1;
  int lost_rank_ = -1;           // by the numbers of the last epoch
  std::string lost_reason_;      // why that epoch ended
  bool has_nccl_error_ = false;  // in this epoch, on this rank
  std::optional<Item> border_;   // frozen: the request for the growth at which this rank has left the epoch
  bool is_border_done_ = false;  // all members of the view had left it there
  JoinState joined_;             // of a rank that joins
  Mutex mutex_;
  std::shared_ptr<EpochState> installing_ GUARDED_BY(mutex_);  // in the startup agreement
  std::atomic<bool> frozen_ = false;                           // written by the engine's thread, orders nothing
  std::atomic<bool> knows_notice_ = false;                     // a caller was told of the notice; orders nothing
  GuardLink guard_;                                            // the last member: its thread calls on_guard_message()
};

}  // namespace horo
