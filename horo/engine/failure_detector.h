// FailureDetector: decides which rank is lost, from silence and suspicions. Rank 0 receives the beats of every rank and
// decides for all ranks. The other ranks receive the beats of rank 0, send it their suspicions, and decide by
// themselves only if rank 0 does not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/error.h"
#include "horo/base/time.h"

namespace horo {

// The time from the first suspicion to the verdict of rank 0, in which the control link may bring better evidence, and
// the additional time that other ranks wait for that verdict.
inline constexpr std::chrono::milliseconds kVerdictDelay{500};
inline constexpr std::chrono::milliseconds kLeaderPatience{1'000};

// Ends an epoch: the lost rank and the text for errors.
struct Verdict {
  int origin = -1;
  std::string text;
};

// Evidence of rank `by` that rank `about` is lost.
struct Suspicion {
  int by = -1;
  int about = -1;  // not known: of kBroken alone, such as an error of NCCL's network. A static job then names `by`
  Evidence evidence = Evidence::kLate;
  std::string text;
};

// A state machine without clock and I/O. One thread.
class FailureDetector {
 public:
  // names: of the ranks in texts, by rank; a missing name is "rank <number>".
  FailureDetector(const Config& config, std::vector<std::string> names);

  // A message of a peer arrived.
  void heard(int from) { silence_[index(from)] = {}; }
  // A peer requested a beat: collectives are in flight there.
  void asked(TimePoint now);
  // The rank left in good order: its silence and its end are no loss.
  void left(int rank);
  void suspect(Suspicion suspicion, TimePoint now);
  // What decides about the members of an elastic job does not hear these ranks either. Replaces what was told before.
  void missed(const std::vector<int>& ranks);
  // This process did not run before `now`: what others have sent may not have been read.
  void was_paused(TimePoint now);

  struct Advice {
    bool ask = false;  // send beats that request an answer
    std::optional<Verdict> verdict;
    std::optional<TimePoint> next_tick;  // the latest time of the next call
  };
  // in_flight: submissions of this rank are in flight.
  Advice tick(bool in_flight, TimePoint now);

 private:
  // The time without a message of a peer while this rank listened, and the number of beats that it was asked for.
  struct Silence {
    Duration time{};
    int asked = 0;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  bool is_heard_directly(int rank) const;
  void add_silence(TimePoint now);
  int longest_silent() const;
  int missed_and_silent() const;
  bool is_silent_for_beats(const Silence& silence) const;
  std::optional<Verdict> judge(TimePoint now) const;
  const Suspicion* certain_death() const;
  Verdict verdict_of(const Suspicion& end) const;
  Verdict verdict_without_end(const Suspicion& suspicion) const;
  const Suspicion& strongest() const;
  std::string silence_text(int rank) const;

  const int rank_;
  const int size_;
  const bool is_elastic_;
  const std::chrono::milliseconds deadline_;
  const std::chrono::milliseconds beat_;
  std::vector<std::string> names_;
  std::vector<Silence> silence_;  // by rank
  std::vector<bool> has_left_;    // by rank
  std::vector<int> missed_;
  std::vector<Suspicion> suspicions_;
  TimePoint suspected_since_{};
  TimePoint asked_until_ = TimePoint::min();
  TimePoint next_ask_ = TimePoint::min();
  std::optional<TimePoint> last_tick_;  // none: nothing is in flight, silence does not count
};

}  // namespace horo
