// StepAccount: divides the steps of the training thread among the bars. The thread keeps a stack of marks; each
// nanosecond belongs to the innermost open mark, or to a wait for horo, which is split (wait_split.h). What lies
// outside of all marks is told by the marks around it: forward, from the last input to an outermost backward; after
// backward, until the optimizer; else between. Pure: times are arguments.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "horo/steps/job_times.h"
#include "horo/steps/step_record.h"
#include "horo/steps/wait_split.h"

namespace horo {

// What the training thread begins or ends. kCollection, of garbage, is beside the bars.
enum class MarkKind : std::uint8_t { kInput, kBackward, kOptimizer, kCheckpoint, kCollection };
inline constexpr std::size_t kMarkKinds = 5;

struct StepMark {
  MarkKind kind = MarkKind::kInput;
  bool opens = false;
  TimePoint at;
};

// What the caller knows of the step that ends.
struct StepEnd {
  TimePoint at;
  std::uint64_t stream = 0;
  std::int64_t samples = kNotKnown;
  std::int64_t work = kNotKnown;
  std::uint32_t kinds = 0;         // of marks that the caller makes, by 1 << MarkKind
  bool is_in_forward = false;      // the step ends while a forward runs: that of its last wait
  bool waits_elsewhere = false;    // the thread waits outside of horo's calls from its last submission on: estimated
  TimePoint last_submission = {};  // of the training thread
  std::uint32_t flags = 0;         // of the record
  bool waits_on_device = false;    // a lane's time in transfer is not that of the collective: hidden time is not known
};

// Of one step.
struct StepWaits {
  std::vector<StepWait> waits;
  std::uint32_t flags = 0;  // of the record
};

// A part of a step, from one time to another.
struct StepPiece {
  Bar bar = Bar::kBetween;
  TimePoint begin, end;
};

class StepAccount {
 public:
  static constexpr std::size_t kMostWaits = 16'384;  // of one step

  // Begins the first step.
  void begin(TimePoint now);
  // The training thread has waited. Waits are added in the order of their begin.
  void add(const StepWait& wait) noexcept;
  // Those of the step that runs. They are taken or put back, for a step that is divided later.
  std::size_t waits() const { return waits_.waits.size(); }
  void exchange(StepWaits& waits) { std::swap(waits_, waits); }
  TimePoint step_begin() const { return begin_; }
  // Ends the step and begins the next one. Marks in their order; times that go back count as the time before them.
  // Times, bars, skew, samples, hidden time and flags are those of the step.
  StepRecord end(const StepEnd& end, std::span<const StepMark> marks, const JobTimes::Taken& done);

  // Whether the pieces of the steps that end from now on are kept, and those of the last one: they follow one another,
  // and their sums are its bars.
  void keep_pieces(bool keeps) { keeps_pieces_ = keeps; }
  const std::vector<StepPiece>& pieces() const { return pieces_; }

  // This rank's skew by the rank that it waited for, over all steps. Rank -1: not known.
  const std::map<std::int32_t, Duration>& skew_by_rank() const { return skew_by_rank_; }

 private:
  static constexpr std::size_t kDeepest = 32;  // open marks

  class Late;

  void advance(TimePoint to);
  void add_piece(Bar bar, TimePoint begin, TimePoint end);
  void take(const StepMark& mark);
  void open(MarkKind kind);
  void close(MarkKind kind);
  void give_rest_to(Bar bar);
  void end_rest(const StepEnd& end);
  void split(const StepWait& wait, const JobTimes::Taken& done, Late& late);
  void add_elsewhere(const StepEnd& end);
  void add_hidden(const JobTimes::Taken& done);

  TimePoint begin_, now_;
  StepWaits waits_;
  StepRecord record_;
  std::array<MarkKind, kDeepest> open_{};
  std::size_t depth_ = 0;
  std::optional<MarkKind> last_;       // the kind of the last input, backward or optimizer that has ended
  Duration rest_{};                    // outside of all marks since then
  std::optional<TimePoint> collects_;  // a collection runs since then
  bool keeps_pieces_ = false;
  std::vector<StepPiece> pieces_;  // of the step that ends, or has ended last
  std::size_t first_rest_ = 0;     // of the pieces: those from here on are the rest, or parts of waits
  std::size_t first_job_ = 0;      // of Taken::jobs that may overlap with the next wait
  std::map<std::int32_t, Duration> skew_by_rank_;
};

}  // namespace horo
