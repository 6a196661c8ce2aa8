// Silences: which members have been silent for too long. It gives up none: JobMembership does, if another member waits.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "elastic/messages.h"
#include "elastic/texts.h"
#include "horo/base/time.h"

namespace horo {

// After a start or a pause of what decides: so long the hosts have at least to call again.
inline constexpr std::chrono::milliseconds kLeastGrace{3'000};

// Why a member may be silent; none of them: it is not.
struct Silence {
  bool has_spoken = false;  // it has sent a message
  // To freeze in the current epoch, which it has not; or to install its first one.
  std::optional<TimePoint> asked;
  std::optional<TimePoint> stopped;    // since then
  bool is_joining = false;             // it is in its first epoch, and has not the state
  std::optional<std::string> unheard;  // its host is not heard any more: "did not answer for 10 s", after "it"
};

class Silences {
 public:
  struct Limits {
    std::chrono::milliseconds silence{}, start{}, join{};  // start: of a member that has not spoken; join: that joins
  };
  Silences(std::size_t members, Limits limits) : limits_(limits), members_(members) {}

  void add() { members_.emplace_back(); }
  Silence& of(MemberId id) { return members_[id]; }
  const Silence& of(MemberId id) const { return members_[id]; }
  // Whether the member can do nothing at all, as far as is known.
  bool is_still(MemberId id) const { return of(id).stopped || of(id).unheard; }

  // A member that continues has the whole time again. So have all others that are stopped, if all of `here` were.
  void go_on(MemberId id, const std::vector<MemberId>& here, TimePoint now) {
    const auto is_stopped = [this](MemberId one) { return of(one).stopped.has_value(); };
    const bool were_all = std::all_of(here.begin(), here.end(), is_stopped);
    of(id).stopped.reset();
    if (of(id).asked) of(id).asked = now;
    for (const MemberId one : here) {
      if (were_all && is_stopped(one)) of(one).stopped = now;
    }
  }
  // The host of the member is heard again. It may get the question to freeze only now.
  void hear(MemberId id, TimePoint now) {
    of(id).unheard.reset();
    if (of(id).asked) of(id).asked = now;
  }
  // This process did not run, or heard no member at all, before `time`: all have the whole time again.
  void count_from(TimePoint time) { from_ = std::max(from_, time); }
  TimePoint counted_from() const { return from_; }
  // None has been silent for too long before.
  void none_before(TimePoint time) { none_before_ = std::max(none_before_, time); }

  // Whether a member that was silent has shown since that it runs.
  bool has_answered(MemberId id) const {
    const Silence& one = of(id);
    return !is_still(id) && (!one.asked || *one.asked >= from_);
  }

  // From when on it is too long; nothing: the member is not silent. A member that is stopped cannot answer.
  std::optional<TimePoint> end_of(MemberId id) const {
    const Silence& one = of(id);
    if (one.unheard) {
      const bool is_whole = from_ == TimePoint::min();
      return std::max(is_whole ? from_ : from_ + std::max(limits_.silence, kLeastGrace), none_before_);
    }
    if (!one.stopped && !one.asked) return std::nullopt;
    const TimePoint since = std::max(one.stopped ? *one.stopped : *one.asked, from_);
    return std::max<TimePoint>(since + limit_of(one), none_before_);
  }
  struct Judgement {
    std::vector<MemberId> silent;       // for too long
    TimePoint next = TimePoint::max();  // the next one of the others will be
  };
  Judgement judge(const std::vector<MemberId>& members, TimePoint now) const {
    Judgement found;
    for (const MemberId id : members) {
      const auto end = end_of(id);
      if (end && *end <= now) found.silent.push_back(id);
      if (end && *end > now) found.next = std::min(found.next, *end);
    }
    return found;
  }
  std::chrono::milliseconds limit_of(MemberId id) const { return limit_of(of(id)); }
  std::chrono::milliseconds limit_of(const Silence& one) const {
    if (one.is_joining) return limits_.join;
    return one.stopped || one.has_spoken ? limits_.silence : limits_.start;
  }
  // "was stopped for 10 s", after "it".
  std::string words(MemberId id) const {
    const Silence& one = of(id);
    if (one.unheard) return *one.unheard;
    return (one.stopped ? "was stopped for " : "did not answer for ") + duration_text(limit_of(one));
  }

 private:
  const Limits limits_;
  std::vector<Silence> members_;  // by id
  TimePoint from_ = TimePoint::min(), none_before_ = TimePoint::min();
};

}  // namespace horo
