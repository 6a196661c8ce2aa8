// Respawns: decides when the guard starts processes in the slots of its host that have lost theirs, or are new. A pure
// state machine: no I/O, no clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "horo/base/time.h"

namespace horo::tools {

struct RespawnConfig {
  int slots = 1;                                 // that have a process at the start
  int restarts = 5;                              // of one slot within kWindow; 0: only grow_to() starts a process
  std::chrono::milliseconds cool_down{600'000};  // so long a slot rests after these
};

// The process of a slot has ended, and the job goes on without it.
struct SlotLoss {
  int slot = 0;
  std::uint32_t rank = 0;   // for the story
  bool had_joined = false;  // it had the state of the job: a process of the start, or one that has joined
  std::string kind;         // "exit code 1"
  std::string line;         // its last words; empty: it printed nothing
};

class Respawns {
 public:
  static constexpr std::chrono::minutes kWindow{10};  // membership after which the back-off begins anew
  static constexpr std::chrono::seconds kLongestBackOff{60};
  static constexpr std::chrono::seconds kPlainPatience{5};  // for the word of a member that the script can grow
  static constexpr int kMostAlike = 3;

  explicit Respawns(const RespawnConfig& config);

  void on_joined(int slot, TimePoint now);  // the process of the slot has got the state of the job
  void on_lost(const SlotLoss& loss, TimePoint now);
  // The process of the slot was evicted, and asks to be a member again. Returns whether it may, which counts as a
  // restart.
  bool take_back(int slot, TimePoint now);
  void on_left(int slot);  // its script has ended in good order: no process takes its place
  // Of the user: the job is to have this number of slots, at least as many as it has. Forgets what keeps the empty ones
  // empty. Returns how many processes are to be started.
  int grow_to(int slots, TimePoint now);
  void stop() { is_stopped_ = true; }  // no process is started any more: the host is drained, or the job ends

  // Whether the members can go on with a process that is started now, and whether a member has ever said so.
  struct Growth {
    bool can_grow = false, was_offered = false;
  };
  struct Start {
    int slot = 0;
    std::optional<std::uint32_t> instead;  // of this rank
  };
  struct Decided {
    std::vector<Start> starts;       // their slots count as taken
    std::vector<std::string> lines;  // of the story
  };
  // To be called after events, when the growth may have changed, and at next_deadline(). `now` never decreases.
  Decided pass_time(TimePoint now, const Growth& growth);
  std::optional<TimePoint> next_deadline() const;
  // Whether an empty slot gets a process until then, if the members can go on with it.
  bool starts_until(TimePoint until) const;

  int slots() const { return static_cast<int>(places_.size()); }

 private:
  struct Place {
    std::optional<TimePoint> due;          // it is empty, and gets a process then
    std::optional<std::uint32_t> instead;  // of this rank
    std::optional<TimePoint> joined;       // its process, if that was started later
    int in_a_row = 0;                      // restarts since its last process that was a member for long
    std::deque<TimePoint> restarts;        // within the window
  };

  void forget_old(Place& place, TimePoint now) const;
  void count_failed_joiner(const SlotLoss& loss);
  void rest(Place& place, std::uint32_t rank, TimePoint now);

  const RespawnConfig config_;
  std::vector<Place> places_;         // by slot
  std::map<std::string, int> alike_;  // joiners that failed, by kind and line, since the last one that has joined
  bool are_alike_ = false;            // so many that none is started
  bool is_stopped_ = false;
  bool is_plain_told_ = false;
  std::optional<std::pair<TimePoint, std::uint32_t>> plain_due_;  // then it is told that this rank is not replaced
  std::vector<std::string> lines_;
  TimePoint now_{};
};

}  // namespace horo::tools
