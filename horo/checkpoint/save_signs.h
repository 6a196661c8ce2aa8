// What a rank sees of the others while a save is written: locks, texts of failures, and the end.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "horo/base/time.h"
#include "horo/checkpoint/save_run.h"

namespace horo::checkpoint {

// Its text names the rank that has failed.
class RankFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr std::chrono::milliseconds kFirstPause{1}, kLastPause{50};
inline constexpr std::chrono::seconds kLockPause{1};  // between two looks at the locks of other ranks

// Pauses that get longer: 1 to 50 ms.
class Pauses {
 public:
  explicit Pauses(SaveControl& control) : control_(control) {}
  void wait();
  void begin_anew() { next_ = kFirstPause; }

 private:
  SaveControl& control_;
  std::chrono::milliseconds next_ = kFirstPause;
};

// Throws RankFailed with the text of rank 0, if it has left one.
void throw_failure(const SaveFolder& save);
// The lock of this rank can be had, so it has ended; or it could not write, had no room to say so, and has removed its
// parts.
bool has_ended(const SavePlan& plan, std::size_t rank);
// When all ranks have their locks: of which ones this rank sees them. Rank 0 looks for those of all, the others for
// that of rank 0.
std::vector<bool> seen_locks(const SavePlan& plan);

// Another rank than rank 0 has told that its parts are written, and waits for the end.
class EndWait {
 public:
  explicit EndWait(const SavePlan& plan);
  // True: the checkpoint is there. False: that is not known yet; an error of the file system may pass. Throws
  // RankFailed: there is none, or nothing has happened for the time of the plan. The files of messages show what
  // happens; rank 0 has that time for its own part, too.
  bool look();

 private:
  bool is_published();
  void check_limit();
  std::vector<std::string> messages() const;

  const SavePlan& plan_;
  std::vector<std::string> seen_;
  std::string trouble_;  // the last error of the file system
  TimePoint until_, next_look_;
  std::optional<TimePoint> gone_since_;
};

// Blocks until the checkpoint is there.
void wait_for_end(const SavePlan& plan, SaveControl& control);
// This rank has told its end and then given up: rank 0 may have published before it saw that. Blocks for a short time.
bool is_published_after_all(const SavePlan& plan) noexcept;

}  // namespace horo::checkpoint
