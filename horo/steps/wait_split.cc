#include "horo/steps/wait_split.h"

#include <algorithm>

namespace horo {
namespace {

constexpr std::array<Bar, kPhases> kBarOfPhase{Bar::kCopies, Bar::kTransfer, Bar::kCopies, Bar::kHandOver};

// One walk through a wait, forward in time.
class Walk {
 public:
  Walk(TimePoint begin, Bars& bars, SkewByRank& late) : now_(begin), bars_(bars), late_(late) {}

  TimePoint now() const { return now_; }

  // What lies between now and `until`, if that is later, belongs to the bar.
  void to(TimePoint until, Bar bar) {
    if (until <= now_) return;
    bars_[index_of(bar)] += until - now_;
    late_.part(bar, now_, until);
    now_ = until;
  }

  // The lane has nothing to do until `until`, at the latest until the job begins.
  void before(const JobTime& job, TimePoint until) {
    const TimePoint released = std::min(job.released, until);
    const TimePoint ready = std::min(job.ready, released);  // min(): not known
    if (ready > now_) {
      late_.add(job.last, ready - now_);
      to(ready, Bar::kSkew);
    }
    to(released, Bar::kAgreement);
    to(until, Bar::kHandOver);
  }

  void inside(const JobTime& job, TimePoint until) {
    for (std::size_t phase = 0; phase < kPhases; ++phase) {
      Bar bar = kBarOfPhase[phase];
      if (job.commits && phase == static_cast<std::size_t>(Phase::kUnpack)) bar = Bar::kCommit;
      if (job.is_aborted) bar = Bar::kMembership;
      to(std::min(job.ends[phase], until), bar);
    }
  }

 private:
  TimePoint now_;
  Bars& bars_;
  SkewByRank& late_;
};

// A part of a wait in which the epoch is not frozen. then: what follows the last job in it, if no job follows.
void split_part(const StepWait& part, std::span<const JobTime> jobs, Bar then, Walk& walk) {
  for (const JobTime& job : jobs) {
    if (walk.now() >= part.end) return;
    const bool is_of_lane = part.lane == kAllLanes || job.lane == part.lane;
    if (!is_of_lane || job.end() <= walk.now()) continue;
    const bool follows = job.begun >= part.end;
    if (follows && part.has_ended) break;
    walk.before(job, std::min(job.begun, part.end));
    walk.inside(job, part.end);
  }
  walk.to(part.end, then);
}

}  // namespace

// The first jobs, which have ended before the wait, are left out by the caller where there are many.
void split_wait(const StepWait& wait, std::span<const JobTime> jobs, std::span<const TimeSpan> frozen, Bars& bars,
                SkewByRank& late) {
  Walk walk(wait.begin, bars, late);
  if (wait.is_on_device) return walk.to(wait.end, Bar::kTransfer);
  for (const TimeSpan& span : frozen) {
    if (span.end <= walk.now() || span.begin >= wait.end) continue;
    // The ranks have not agreed on what would have followed.
    const StepWait part{walk.now(), std::max(span.begin, walk.now()), wait.lane, true};
    split_part(part, jobs, Bar::kAgreement, walk);
    walk.to(std::min(span.end, wait.end), Bar::kMembership);
  }
  split_part({walk.now(), wait.end, wait.lane, wait.has_ended}, jobs, Bar::kHandOver, walk);
}

Duration overlap(const TimeSpan& span, std::span<const StepWait> waits) {
  Duration sum{};
  const auto first = std::ranges::lower_bound(waits, span.begin, {}, [](const StepWait& wait) { return wait.end; });
  for (auto wait = first; wait != waits.end() && wait->begin < span.end; ++wait) {
    sum += std::max(std::min(wait->end, span.end) - std::max(wait->begin, span.begin), Duration{});
  }
  return sum;
}

}  // namespace horo
