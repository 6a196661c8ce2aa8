// Steps of different ranks belong together if they end at the same time: all ranks leave a reduction together. So ranks
// that have joined later, whose steps have other numbers, are compared as well.
#include "horo/steps/straggler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace horo {
namespace {

constexpr double kOwnShare = 0.6;          // of the waits, for one rank
constexpr double kLeastCorrelation = 0.7;  // Spearman
constexpr int kFewestPeriods = 4;

double nanoseconds(Duration duration) {
  return static_cast<double>(duration.count());
}

double length_of(const StepRecord& step) {
  return nanoseconds(step.end - step.begin);
}

double bar_of(const StepRecord& step, Bar bar) {
  return nanoseconds(step.bars[index_of(bar)]);
}

// Without waits for horo.
double own_time(const StepRecord& step) {
  double own = 0;
  for (std::size_t bar = 0; bar <= index_of(Bar::kBetween); ++bar) own += nanoseconds(step.bars[bar]);
  return own;
}

// Of values that weigh as much as they are: half of their sum is in larger ones.
double heavy_median(std::vector<double> values) {
  std::ranges::sort(values);
  const double half = std::accumulate(values.begin(), values.end(), 0.0) / 2;
  double sum = 0;
  for (const double value : values) {
    if ((sum += value) >= half) return value;
  }
  return 0;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The ranks of the values: equal ones share the mean of their places.
std::vector<double> places_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> places(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) places[order[i]] = static_cast<double>(begin + end - 1) / 2;
    begin = end;
  }
  return places;
}

// Spearman's: 0 if one of them does not vary.
double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = places_of(a), y = places_of(b);
  const double mean = static_cast<double>(x.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

// The step of a rank that ends together with another rank's; null: there is none.
const StepRecord* together_with(const StepRecord& other, const std::vector<StepRecord>& steps) {
  const auto after = std::ranges::lower_bound(steps, other.end, {}, &StepRecord::end);
  const StepRecord* best = nullptr;
  for (auto one = after == steps.begin() ? after : std::prev(after); one != steps.end() && one <= after; ++one) {
    const auto distance = std::chrono::abs(one->end - other.end);
    if (distance * 2 >= other.end - other.begin) continue;
    if (best == nullptr || distance < std::chrono::abs(best->end - other.end)) best = &*one;
  }
  return best;
}

// One step of all ranks.
struct Row {
  std::vector<const StepRecord*> steps;  // by place in `ranks`
  std::map<int, double> waits;           // of all ranks, by the rank that they wait for
  std::map<int, double> late;            // the median of these waits, as of what the rank does longer than the others
  double all = 0;

  double late_of(int rank) const {
    const auto found = late.find(rank);
    return found == late.end() ? 0 : found->second;
  }
};

// Ranks that do not wait for it wait for 0.
double median_wait(std::vector<double> waits, std::size_t ranks) {
  waits.resize(std::max(waits.size(), ranks));
  return median(std::move(waits));
}

std::vector<Row> rows_of(std::span<const RankSteps> ranks) {
  std::vector<Row> rows;
  for (const StepRecord& step : ranks.front().steps) {
    Row row;
    std::map<int, std::vector<double>> waits;
    for (const RankSteps& rank : ranks) {
      const StepRecord* found = &rank == ranks.data() ? &step : together_with(step, rank.steps);
      if (found == nullptr) break;
      row.steps.push_back(found);
      row.all += bar_of(*found, Bar::kSkew);
      for (std::size_t i = 0; i < StepRecord::kLateRanks; ++i) {
        const double skew = nanoseconds(found->late_skews[i]);
        if (skew <= 0) continue;
        row.waits[found->late_ranks[i]] += skew;
        waits[found->late_ranks[i]].push_back(skew);
      }
    }
    for (auto& [rank, of_others] : waits) row.late[rank] = median_wait(std::move(of_others), ranks.size() - 1);
    if (row.steps.size() == ranks.size()) rows.push_back(std::move(row));
  }
  return rows;
}

class Search {
 public:
  Search(std::span<const RankSteps> ranks, std::vector<Row> rows) : ranks_(ranks), rows_(std::move(rows)) {}

  std::optional<Straggler> run() {
    double time = 0, all = 0;
    std::map<int, double> waits;
    for (const Row& row : rows_) {
      for (const StepRecord* step : row.steps) time += length_of(*step);
      all += row.all;
      for (const auto& [rank, wait] : row.waits) waits[rank] += wait;
    }
    found_.exposed = time > 0 ? all / time : 0;
    if (found_.exposed < kLeastExposed) return std::nullopt;
    const auto most = std::ranges::max_element(waits, {}, &std::pair<const int, double>::second);
    if (most != waits.end() && most->first >= 0) blame(most->first, most->second / all, all);
    if (found_.rank < 0) look_for_data(-1);
    return found_;
  }

 private:
  // The waits for the rank in the steps in which it was last.
  void blame(int rank, double share, double all) {
    std::vector<double> late;
    double as_last = 0;
    for (const Row& row : rows_) {
      const auto last = std::ranges::max_element(row.waits, {}, &std::pair<const int, double>::second);
      if (last == row.waits.end() || last->first != rank) continue;
      as_last += last->second;
      late.push_back(row.late_of(rank));
    }
    if (share < kOwnShare || as_last < kOwnShare * all) return;
    found_.rank = rank;
    found_.share = share;
    found_.late = Duration(static_cast<std::int64_t>(heavy_median(late)));
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].late_of(rank) >= nanoseconds(found_.late) / 2) late_rows_.push_back(i);
    }
    found_.steps = static_cast<double>(late_rows_.size()) / static_cast<double>(rows_.size());
    say_when();
    say_why();
  }

  void say_when() {
    if (found_.steps >= kMostOfIt) {
      found_.when = When::kAlways;
      return;
    }
    std::map<std::size_t, int> distances;
    for (std::size_t i = 1; i < late_rows_.size(); ++i) ++distances[late_rows_[i] - late_rows_[i - 1]];
    const auto usual = std::ranges::max_element(distances, {}, &std::pair<const std::size_t, int>::second);
    if (usual != distances.end() && usual->first > 1 && usual->second >= kFewestPeriods - 1 &&
        usual->second >= kMostOfIt * static_cast<double>(late_rows_.size() - 1)) {
      found_.when = When::kPeriodic;
      found_.period = static_cast<int>(usual->first);
      return;
    }
    look_for_data(found_.rank);
  }

  // Whether the time of a step follows the amount of its data: on this rank, or on most.
  void look_for_data(int rank) {
    std::vector<double> found;
    for (std::size_t place = 0; place < ranks_.size(); ++place) {
      if (rank >= 0 && ranks_[place].rank != rank) continue;
      std::vector<double> times, work;
      for (const Row& row : rows_) {
        if (row.steps[place]->work < 0) continue;
        times.push_back(own_time(*row.steps[place]));
        work.push_back(static_cast<double>(row.steps[place]->work));
      }
      if (times.size() >= kFewestSteps) found.push_back(correlation(times, work));
    }
    const double usual = median(found);
    if (found.empty() || usual < kLeastCorrelation) return;
    found_.when = When::kWithData;
    found_.correlation = usual;
  }

  // Evidence precedes the comparison of bars.
  void say_why() {
    const auto mine =
        static_cast<std::size_t>(std::ranges::find(ranks_, found_.rank, &RankSteps::rank) - ranks_.begin());
    if (mine == ranks_.size()) return;  // on another host
    double late = 0;
    for (const std::size_t i : late_rows_) late += rows_[i].late_of(found_.rank);
    const auto covers = [&](Cause cause, auto of) {
      const double excess = excess_of(mine, of);
      if (excess < kMostOfIt * late) return false;
      found_.cause = cause;
      found_.excess = Duration(static_cast<std::int64_t>(excess / static_cast<double>(late_rows_.size())));
      return true;
    };
    if (covers(Cause::kStopped, [&](const StepRecord& step, std::size_t place) { return stopped_in(step, place); }))
      return;
    if (covers(Cause::kCollection, [](const StepRecord& step, std::size_t) {
          return std::max<double>(static_cast<double>(step.gc_ns), 0);
        }))
      return;
    if (covers(Cause::kNoCore, [](const StepRecord& step, std::size_t) {
          return std::max<double>(static_cast<double>(step.run_queue_ns), 0);
        }))
      return;
    Bar best = Bar::kInput;
    double most = -1;
    for (std::size_t bar = 0; bar <= index_of(Bar::kBetween); ++bar) {
      const double excess =
          excess_of(mine, [&](const StepRecord& step, std::size_t) { return nanoseconds(step.bars[bar]); });
      if (excess > most) best = static_cast<Bar>(bar), most = excess;
    }
    if (covers(Cause::kBar, [&](const StepRecord& step, std::size_t) { return bar_of(step, best); })) found_.bar = best;
  }

  // Over the late rows: how much more this rank has than the median of the others.
  template <class Of>
  double excess_of(std::size_t mine, Of of) const {
    double sum = 0;
    for (const std::size_t i : late_rows_) {
      const std::vector<const StepRecord*>& steps = rows_[i].steps;
      std::vector<double> others;
      for (std::size_t place = 0; place < steps.size(); ++place) {
        if (place != mine) others.push_back(of(*steps[place], place));
      }
      sum += of(*steps[mine], mine) - median(others);
    }
    return sum;
  }

  double stopped_in(const StepRecord& step, std::size_t place) const {
    double sum = 0;
    for (const TimeSpan& span : ranks_[place].stopped) {
      sum += std::max(0.0, nanoseconds(std::min(span.end, step.end) - std::max(span.begin, step.begin)));
    }
    return sum;
  }

  const std::span<const RankSteps> ranks_;
  const std::vector<Row> rows_;
  std::vector<std::size_t> late_rows_;  // in which the rank is late by at least half of Straggler::late
  Straggler found_;
};

}  // namespace

std::optional<Straggler> find_straggler(std::span<const RankSteps> ranks) {
  if (ranks.size() < 2) return std::nullopt;
  std::vector<Row> rows = rows_of(ranks);
  if (rows.size() < kFewestSteps) return std::nullopt;
  return Search(ranks, std::move(rows)).run();
}

}  // namespace horo
