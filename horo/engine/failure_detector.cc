// Silence counts only while this rank listens: the time between two ticks counts as two beats at most, so a rank that
// was stopped and continues does not take its own pause for silence of the others. Silence counts only while
// collectives are in flight, on this rank or on a rank that asks for beats, so an idle job may pause for any time. A
// rank is lost after a silence of the deadline, or of a few beats if a collective failed: then the silent rank is the
// cause, and the neighbour whose bytes are missing may only have waited for it. The same holds for a rank that the job
// misses, too.
#include "horo/engine/failure_detector.h"

#include <algorithm>
#include <sstream>

namespace horo {
namespace {

using std::chrono::milliseconds;

bool is_end(const Suspicion& suspicion) {
  return suspicion.evidence == Evidence::kGone || suspicion.evidence == Evidence::kDied;
}

// A silence counts after this number of unanswered beats, for short deadlines too.
constexpr int kLeastAsked = 3;
constexpr int kBeatsPerDeadline = 8;
constexpr int kFewAsked = 2;  // with other evidence

std::string seconds(Duration time) {
  std::ostringstream text;
  text.precision(1);
  text << std::fixed << std::chrono::duration<double>(time).count() << " s";
  return text.str();
}

}  // namespace

FailureDetector::FailureDetector(const Config& config, std::vector<std::string> names)
    : rank_(config.rank),
      size_(config.size),
      is_elastic_(config.min_np > 0),
      deadline_(config.deadline),
      beat_(std::clamp(config.deadline / kBeatsPerDeadline, milliseconds(1), config.beat)),
      names_(std::move(names)),
      silence_(index(size_)),
      has_left_(index(size_)) {
  for (int rank = static_cast<int>(names_.size()); rank < size_; ++rank) {
    names_.push_back("rank " + std::to_string(rank));
  }
}

bool FailureDetector::is_heard_directly(int rank) const {
  return rank != rank_ && (rank_ == 0 || rank == 0) && !has_left_[index(rank)];
}

void FailureDetector::asked(TimePoint now) {
  asked_until_ = now + 3 * beat_;
}

// The end of its process is no loss either.
void FailureDetector::left(int rank) {
  has_left_[index(rank)] = true;
  std::erase_if(suspicions_, [rank](const Suspicion& one) { return one.about == rank && is_end(one); });
}

void FailureDetector::suspect(Suspicion suspicion, TimePoint now) {
  if (suspicion.about >= 0 && has_left_[index(suspicion.about)] && is_end(suspicion)) return;
  if (suspicions_.empty()) suspected_since_ = now;
  suspicions_.push_back(std::move(suspicion));
}

void FailureDetector::missed(const std::vector<int>& ranks) {
  missed_ = ranks;
}

void FailureDetector::was_paused(TimePoint now) {
  for (Silence& silence : silence_) silence = {};
  if (last_tick_) last_tick_ = now;
  if (!suspicions_.empty()) suspected_since_ = now;
}

void FailureDetector::add_silence(TimePoint now) {
  if (!last_tick_) {
    for (Silence& silence : silence_) silence = {};
    next_ask_ = std::max(next_ask_, now + beat_);  // collectives shorter than a beat cause no beats
  }
  const Duration time = last_tick_ ? std::min<Duration>(now - *last_tick_, 2 * beat_) : Duration::zero();
  for (Silence& silence : silence_) silence.time += time;
  last_tick_ = now;
}

FailureDetector::Advice FailureDetector::tick(bool in_flight, TimePoint now) {
  Advice advice;
  if (!in_flight && now >= asked_until_ && suspicions_.empty()) {
    last_tick_.reset();
    return advice;
  }
  add_silence(now);
  advice.verdict = judge(now);
  if (advice.verdict) return advice;
  if (now >= next_ask_) {
    advice.ask = true;
    next_ask_ = now + beat_;
    for (Silence& silence : silence_) ++silence.asked;
  }
  advice.next_tick = certain_death() ? suspected_since_ : next_ask_;
  return advice;
}

// The rank with the longest silence; -1: none.
int FailureDetector::longest_silent() const {
  int found = -1;
  for (int rank = 0; rank < size_; ++rank) {
    if (!is_heard_directly(rank)) continue;
    if (found < 0 || silence_[index(rank)].time > silence_[index(found)].time) found = rank;
  }
  return found;
}

// A rank that the job does not hear, and this rank does not either; -1: none.
int FailureDetector::missed_and_silent() const {
  const auto found = std::ranges::find_if(
      missed_, [this](int rank) { return is_heard_directly(rank) && is_silent_for_beats(silence_[index(rank)]); });
  return found == missed_.end() ? -1 : *found;
}

bool FailureDetector::is_silent_for_beats(const Silence& silence) const {
  return silence.time >= 2 * beat_ + beat_ / 2 && silence.asked >= kFewAsked;
}

std::optional<Verdict> FailureDetector::judge(TimePoint now) const {
  const int silent = longest_silent();
  const Silence silence = silent < 0 ? Silence{} : silence_[index(silent)];
  if (silence.time >= deadline_ && silence.asked >= kLeastAsked) return Verdict{silent, silence_text(silent)};
  if (const int missed = missed_and_silent(); missed >= 0)
    return Verdict{missed, silence_text(missed) + ". horo run does not hear it either"};
  if (suspicions_.empty()) return std::nullopt;
  const Suspicion* death = certain_death();
  if (death && now > suspected_since_)
    return verdict_of(*death);  // at the next tick: a message of that rank may be unread
  const Suspicion& suspicion = strongest();
  if (now - suspected_since_ < kVerdictDelay + (rank_ == 0 ? milliseconds(0) : kLeaderPatience)) return std::nullopt;
  if (is_end(suspicion)) return verdict_of(suspicion);
  if (silent >= 0 && is_silent_for_beats(silence)) {
    return Verdict{silent, silence_text(silent) + ". It was missed when " + suspicion.text};
  }
  return verdict_without_end(suspicion);
}

// In an elastic job an error whose rank is not known costs no rank.
Verdict FailureDetector::verdict_without_end(const Suspicion& suspicion) const {
  if (suspicion.about < 0) return {is_elastic_ ? -1 : suspicion.by, suspicion.text};
  if (suspicion.evidence != Evidence::kLate || !is_heard_directly(suspicion.about)) {
    return {suspicion.about, suspicion.text};
  }
  return {suspicion.about,
          names_[index(suspicion.about)] + " answers, but does not send what is waited for: " + suspicion.text};
}

Verdict FailureDetector::verdict_of(const Suspicion& end) const {
  return {end.about, names_[index(end.about)] + " is lost: " + end.text};
}

// A death that needs no more evidence, or null. Other ranks than 0 wait for rank 0 to choose among several deaths,
// unless rank 0 itself is dead.
const Suspicion* FailureDetector::certain_death() const {
  const auto found = std::ranges::find_if(suspicions_, [this](const Suspicion& one) {
    return one.evidence == Evidence::kDied && (rank_ == 0 || one.about == 0);
  });
  return found == suspicions_.end() ? nullptr : &*found;
}

// The suspicion with the best evidence; of equal ones, that about a known rank which suspects no other rank.
const Suspicion& FailureDetector::strongest() const {
  const auto weight = [this](const Suspicion& one) {
    const bool waits = one.about < 0 ||
                       std::ranges::any_of(suspicions_, [&](const Suspicion& other) { return other.by == one.about; });
    return 2 * static_cast<int>(one.evidence) + (waits ? 1 : 0);  // the least weight is the strongest
  };
  return *std::min_element(suspicions_.begin(), suspicions_.end(),
                           [&](const Suspicion& a, const Suspicion& b) { return weight(a) < weight(b); });
}

std::string FailureDetector::silence_text(int rank) const {
  return names_[index(rank)] + " gave no sign of life for " + seconds(silence_[index(rank)].time) +
         " while collectives were in flight (HORO_DEADLINE_MS=" + std::to_string(deadline_.count()) +
         ", seen by rank " + std::to_string(rank_) + "): it is stopped, hangs, or lost its network";
}

}  // namespace horo
