#include "horo/steps/step_account.h"

#include <algorithm>
#include <new>
#include <utility>

namespace horo {
namespace {

constexpr std::array<Bar, kMarkKinds> kBarOfMark{Bar::kInput, Bar::kBackward, Bar::kOptimizer, Bar::kCheckpoint};

constexpr Bar kRest{kBars};  // of a piece whose bar the next mark tells

constexpr bool has(std::uint32_t kinds, MarkKind kind) {
  return (kinds >> static_cast<std::uint32_t>(kind) & 1) != 0;
}

std::uint32_t known_by(std::uint32_t kinds) {
  std::uint32_t known = kKnownWithoutMarks;
  for (const MarkKind kind : {MarkKind::kInput, MarkKind::kBackward, MarkKind::kOptimizer, MarkKind::kCheckpoint}) {
    if (has(kinds, kind)) known |= bit_of(kBarOfMark[static_cast<std::size_t>(kind)]);
  }
  if (has(kinds, MarkKind::kBackward)) known |= bit_of(Bar::kForward);
  if (has(kinds, MarkKind::kBackward) && has(kinds, MarkKind::kOptimizer)) known |= bit_of(Bar::kAfterBackward);
  return known;
}

}  // namespace

// The ranks for which this rank has waited in one step.
class StepAccount::Late : public SkewByRank {
 public:
  explicit Late(StepAccount& account) : account_(account) {}
  void add(std::int32_t rank, Duration skew) override { skews_[rank] += skew; }
  void part(Bar bar, TimePoint begin, TimePoint end) override { account_.add_piece(bar, begin, end); }
  const std::map<std::int32_t, Duration>& skews() const { return skews_; }

  // The largest ones whose rank is known.
  void write_to(StepRecord& record) const {
    std::vector<LateRank> all;
    for (const auto& [rank, skew] : skews_) {
      if (rank >= 0) all.push_back({rank, skew});
    }
    const auto most = std::min(all.size(), StepRecord::kLateRanks);
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(most), all.end(),
                      [](const LateRank& a, const LateRank& b) { return a.skew > b.skew; });
    for (std::size_t i = 0; i < most; ++i) {
      record.late_ranks[i] = all[i].rank;
      record.late_skews[i] = all[i].skew;
    }
  }

 private:
  StepAccount& account_;
  std::map<std::int32_t, Duration> skews_;
};

void StepAccount::begin(TimePoint now) {
  begin_ = now_ = now;
  waits_.waits.clear();
  waits_.flags = 0;
  record_ = {};
  depth_ = 0;
  last_.reset();
  rest_ = {};
  collects_.reset();
}

void StepAccount::add(const StepWait& wait) noexcept {
  try {
    if (waits_.waits.size() < kMostWaits) return waits_.waits.push_back(wait);
  } catch (const std::bad_alloc&) {
  }
  waits_.flags |= kTooManyWaits;
}

void StepAccount::advance(TimePoint to) {
  if (to <= now_) return;
  if (depth_ == 0) {
    rest_ += to - now_;
    add_piece(kRest, now_, to);
  } else {
    const Bar bar = kBarOfMark[static_cast<std::size_t>(open_[std::min(depth_, kDeepest) - 1])];
    record_.bars[index_of(bar)] += to - now_;
    add_piece(bar, now_, to);
  }
  now_ = to;
}

void StepAccount::add_piece(Bar bar, TimePoint begin, TimePoint end) {
  if (!keeps_pieces_) return;
  const bool continues = !pieces_.empty() && pieces_.back().bar == bar && pieces_.back().end == begin;
  if (continues) {
    pieces_.back().end = end;
  } else {
    pieces_.push_back({bar, begin, end});
  }
}

void StepAccount::give_rest_to(Bar bar) {
  for (; first_rest_ < pieces_.size(); ++first_rest_) {
    if (pieces_[first_rest_].bar == kRest) pieces_[first_rest_].bar = bar;
  }
  record_.bars[index_of(bar)] += rest_;
  rest_ = {};
}

void StepAccount::open(MarkKind kind) {
  if (depth_ == 0) {
    if (kind == MarkKind::kBackward) give_rest_to(Bar::kForward);
    if (kind == MarkKind::kInput) give_rest_to(Bar::kBetween);
    if (kind == MarkKind::kOptimizer) {
      give_rest_to(last_ == MarkKind::kBackward ? Bar::kAfterBackward : Bar::kBetween);
    }
  }
  if (depth_ < kDeepest) open_[depth_] = kind;
  ++depth_;
}

// Marks above it were left by an exception. A mark that was never opened is not closed.
void StepAccount::close(MarkKind kind) {
  if (depth_ > kDeepest) {
    --depth_;
    return;
  }
  std::size_t depth = depth_;
  while (depth > 0 && open_[depth - 1] != kind) --depth;
  if (depth == 0) return;
  depth_ = depth - 1;
  if (depth_ == 0 && kind != MarkKind::kCheckpoint) last_ = kind;
}

void StepAccount::take(const StepMark& mark) {
  if (mark.kind == MarkKind::kCollection) {
    const TimePoint at = std::max(mark.at, begin_);
    if (mark.opens) {
      collects_ = at;
    } else if (collects_) {
      record_.gc_ns += std::chrono::nanoseconds(std::max(at - *collects_, Duration{})).count();
      collects_.reset();
    }
    return;
  }
  advance(mark.at);
  mark.opens ? open(mark.kind) : close(mark.kind);
}

void StepAccount::split(const StepWait& wait, const JobTimes::Taken& done, Late& late) {
  StepWait part = wait;
  part.begin = std::max(wait.begin, now_);
  part.end = std::max(wait.end, now_);
  const std::span<const JobTime> jobs(done.jobs);
  while (first_job_ < jobs.size() && jobs[first_job_].end() <= part.begin) ++first_job_;
  split_wait(part, jobs.subspan(first_job_), done.frozen, record_.bars, late);
  now_ = part.end;
}

// The time from the thread's last submission to the end of its backward, if the thread has not waited since. Another
// thread may have submitted for it: nothing is known then.
void StepAccount::add_elsewhere(const StepEnd& end) {
  const TimePoint from = end.last_submission;
  if (!end.waits_elsewhere || from <= begin_ || from >= end.at) return;
  if (!waits_.waits.empty() && waits_.waits.back().end > from) return;
  add({from, end.at, kAllLanes, true});
  record_.flags |= kEstimatedWait;
}

void StepAccount::add_hidden(const JobTimes::Taken& done) {
  const auto outside = [&](TimePoint from, TimePoint to) {
    const TimeSpan span{std::clamp(from, begin_, now_), std::clamp(to, begin_, now_)};
    return std::chrono::nanoseconds(span.end - span.begin - overlap(span, waits_.waits)).count();
  };
  record_.hidden_transfer_ns = record_.hidden_copies_ns = 0;
  for (const JobTime& job : done.jobs) {
    record_.epoch = std::max(record_.epoch, job.epoch);
    if (job.is_aborted || job.end() <= begin_ || job.begun >= now_) continue;
    const auto& [pack, transfer, unpack, deliver] = job.ends;
    record_.hidden_copies_ns += outside(job.begun, pack);
    record_.hidden_transfer_ns += outside(pack, transfer);
    (job.commits ? record_.hidden_transfer_ns : record_.hidden_copies_ns) += outside(transfer, unpack);
  }
}

// What follows the last mark of the step is not known yet. After an input it is most likely a forward.
void StepAccount::end_rest(const StepEnd& end) {
  const bool is_forward = end.is_in_forward || last_ == MarkKind::kInput;
  give_rest_to(is_forward ? Bar::kForward : Bar::kBetween);
  record_.known = known_by(end.kinds);
  for (std::size_t bar = 0; bar < index_of(Bar::kBetween); ++bar) {
    if ((record_.known >> bar & 1) != 0) continue;
    record_.bars[index_of(Bar::kBetween)] += record_.bars[bar];
    record_.bars[bar] = {};
    for (StepPiece& piece : pieces_) {
      if (index_of(piece.bar) == bar) piece.bar = Bar::kBetween;
    }
  }
}

StepRecord StepAccount::end(const StepEnd& end, std::span<const StepMark> marks, const JobTimes::Taken& done) {
  Late late(*this);
  pieces_.clear();
  first_job_ = first_rest_ = 0;
  record_.gc_ns = 0;
  const TimePoint at = std::max(end.at, begin_);
  add_elsewhere(end);
  for (StepWait& wait : waits_.waits) {  // ascending and apart from one another
    wait.begin = std::clamp(wait.begin, now_, at);
    wait.end = std::clamp(wait.end, wait.begin, at);
    now_ = wait.end;
  }
  now_ = begin_;
  auto wait = waits_.waits.begin();
  const auto take_waits_before = [&](TimePoint until) {
    for (; wait != waits_.waits.end() && wait->begin < until; ++wait) {
      advance(wait->begin);
      split(*wait, done, late);
    }
  };
  for (const StepMark& mark : marks) {
    const StepMark clipped{mark.kind, mark.opens, std::min(mark.at, at)};
    take_waits_before(clipped.at);
    take(clipped);
  }
  take_waits_before(TimePoint::max());
  advance(at);
  end_rest(end);
  if (collects_) record_.gc_ns += std::chrono::nanoseconds(std::max(at - *collects_, Duration{})).count();
  if (collects_) collects_ = at;
  if (!has(end.kinds, MarkKind::kCollection)) record_.gc_ns = kNotKnown;
  add_hidden(done);
  if (end.waits_on_device) record_.hidden_transfer_ns = record_.hidden_copies_ns = kNotKnown;
  record_.flags |= end.flags | waits_.flags;
  if (done.has_forgotten) record_.flags |= kJobsForgotten;
  late.write_to(record_);
  for (const auto& [rank, skew] : late.skews()) skew_by_rank_[rank] += skew;
  record_.begin = begin_;
  record_.end = begin_ = now_ = at;
  record_.stream = end.stream;
  record_.samples = end.samples;
  record_.work = end.work;
  waits_.waits.clear();
  waits_.flags = 0;
  return std::exchange(record_, {});
}

}  // namespace horo
