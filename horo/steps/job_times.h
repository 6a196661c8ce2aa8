// JobTimes: when the lanes of this rank ran which collective, and when its epoch was frozen: what a wait of the
// training thread is split by. Always on, bounded, without names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "horo/base/mutex.h"
#include "horo/base/time.h"
#include "horo/base/timeline.h"

namespace horo {

// A collective that a lane has run, or runs.
struct JobTime {
  std::uint32_t lane = 0;  // the number of its process set, or kTimelineMessages
  std::uint32_t epoch = 0;
  std::int32_t last = -1;                 // the rank that was ready last; -1: not known
  bool commits = false;                   // Phase::kUnpack is the commit of an elastic job
  bool is_aborted = false;                // it ended with its epoch, without a result
  TimePoint ready = TimePoint::min();     // when the last rank was ready, on this rank's clock; min(): not known
  TimePoint released, begun;              // on this rank
  std::array<TimePoint, kPhases> ends{};  // by phase, in order; as the one before: there was no such phase

  TimePoint end() const { return ends.back(); }
};

struct TimeSpan {
  TimePoint begin, end;
};

// Any thread. No function blocks for longer than another one needs.
class JobTimes {
 public:
  static constexpr std::size_t kMostOfLane = 4'096;  // of one lane between two takes; the oldest ones are forgotten
  static constexpr std::size_t kMost = 16'384;       // of all lanes

  // Times are stored between the first call and the destruction of the last lane. Off, every function does nothing.
  explicit JobTimes(bool is_on) : is_on_(is_on) {}
  bool is_on() const { return is_on_; }

  // ---- The thread that runs the lane's tasks. key: tells lanes apart; a lane runs one job at a time.

  // The lane begins a job. A job of the lane that has not ended was aborted.
  void begin(const void* key, const JobTime& job) noexcept;
  // The phase of the lane's job ends.
  void mark(const void* key, Phase phase, TimePoint now) noexcept;
  void end(const void* key, std::uint32_t epoch, TimePoint now) noexcept;
  // The lane has ended. What it ran was aborted.
  void close(const void* key, TimePoint now) noexcept;

  // ---- The engine.

  // The epoch is frozen from now on, until thaw(): what runs is aborted. Further calls before that have no effect.
  void freeze(TimePoint now) noexcept;
  void thaw(TimePoint now) noexcept;

  // ---- The accounting.

  struct Taken {
    std::vector<JobTime> jobs;     // by begin; those that still run end at `now`
    std::vector<TimeSpan> frozen;  // by begin
    bool has_forgotten = false;    // there were more jobs than are kept
  };
  // Moves everything that has begun before `now` into `taken`. What goes on after it is also in the next one, as a
  // whole. The vectors' memory is used again.
  void take(TimePoint now, Taken& taken) noexcept;

 private:
  struct Running {
    JobTime job;
    std::size_t marked = 0;  // phases that have ended
    bool is_running = false;
  };

  void move_to(TimePoint now, Taken& taken) noexcept;
  void store(const JobTime& job) noexcept REQUIRES(mutex_);
  static JobTime until(const Running& running, TimePoint now);

  const bool is_on_;
  Mutex mutex_;
  std::map<const void*, Running> running_ GUARDED_BY(mutex_);
  std::vector<JobTime> ended_ GUARDED_BY(mutex_);
  std::map<std::uint32_t, std::size_t> counts_ GUARDED_BY(mutex_);  // of ended_, by lane
  bool has_forgotten_ GUARDED_BY(mutex_) = false;
  bool is_frozen_ GUARDED_BY(mutex_) = false;
  TimePoint frozen_at_ GUARDED_BY(mutex_);
  std::vector<TimeSpan> frozen_ GUARDED_BY(mutex_);
};

}  // namespace horo
