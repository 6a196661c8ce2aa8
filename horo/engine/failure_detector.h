// FailureDetector: who is silent, who is suspected, and who is named in the end. Rank 0 hears everybody and judges for
// all; the others hear rank 0 alone, tell it what they suspect, and judge by themselves only if it does not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/error.h"
#include "horo/base/time.h"

namespace horo {

// Before a suspicion is believed; the control link may know who really died. Rank 0 collects what all suspect, so the
// others wait longer: for its verdict.
inline constexpr std::chrono::milliseconds kVerdictDelay{500};
inline constexpr std::chrono::milliseconds kLeaderPatience{1'000};

// What ends an epoch.
struct Verdict {
  int origin = -1;
  std::string text;
};

// Somebody seems to be lost.
struct Suspicion {
  int by = -1;
  int about = -1;
  Evidence evidence = Evidence::kLate;
  std::string text;
};

// Pure: time is an argument, there is no I/O. One thread.
class FailureDetector {
 public:
  // `names`: how texts call each rank, by rank; what is missing is "rank 2".
  FailureDetector(const Config& config, std::vector<std::string> names);

  // Any sign of life of a peer; asked: something is in flight there.
  void heard(int from) { silence_[index(from)] = {}; }
  void asked(TimePoint now);
  // It said goodbye: nothing more is expected of it.
  void left(int rank);
  void suspect(Suspicion suspicion, TimePoint now);

  // What to do now, and when to look again at the latest. `in_flight`: callers of this rank wait for something.
  struct Advice {
    bool ask = false;  // send beats that want an answer
    std::optional<Verdict> verdict;
    std::optional<TimePoint> again;
  };
  Advice look(bool in_flight, TimePoint now);

 private:
  // How long a peer has not been heard while we listened, and how often it was asked meanwhile.
  struct Silence {
    Duration time{};
    int asked = 0;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  bool is_heard_directly(int rank) const;
  void listen(TimePoint now);
  int most_silent() const;
  std::optional<Verdict> judge(TimePoint now) const;
  const Suspicion* certain() const;
  Verdict verdict_of(const Suspicion& end) const;
  const Suspicion& strongest() const;
  std::string say_silent(int rank) const;

  const int rank_;
  const int size_;
  const std::chrono::milliseconds deadline_;
  const std::chrono::milliseconds beat_;
  std::vector<std::string> names_;
  std::vector<Silence> silence_;  // by rank
  std::vector<bool> has_left_;    // by rank
  std::vector<Suspicion> suspicions_;
  TimePoint suspected_since_{};
  TimePoint asked_until_ = TimePoint::min();
  TimePoint next_ask_ = TimePoint::min();
  std::optional<TimePoint> last_look_;  // none: nothing is in flight, silence means nothing
};

}  // namespace horo
