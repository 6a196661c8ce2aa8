// Steps of different ranks belong together if they end at the same time: all ranks leave a reduction together. So ranks
// that have joined later, whose steps have other numbers, are compared as well.
#include "horo/steps/straggler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

namespace horo {
namespace {

constexpr double kOwnShare = 0.6;          // of the waits, for one rank or host
constexpr double kHostDistance = 3;        // from the other hosts, in differences between ranks of a host
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

// Gives the steps what the kernel has counted in all of them together: first to those that took longer than usual, as
// long as they did; the rest by their own times.
void share_out(double counted, double usual, std::span<const StepRecord> steps, double* shares) {
  const auto beyond = [usual](const StepRecord& step) { return std::max(own_time(step) - usual, 0.0); };
  double all = 0, all_beyond = 0;
  for (const StepRecord& step : steps) all += own_time(step), all_beyond += beyond(step);
  const double first = std::min(counted, all_beyond);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (all_beyond > 0) shares[i] += first * beyond(steps[i]) / all_beyond;
    if (all > 0) shares[i] += (counted - first) * own_time(steps[i]) / all;
  }
}

// Of each step, nanoseconds without a core. The kernel is asked every 10 ms at most: what it tells is that of all steps
// since.
std::vector<double> without_core(const std::vector<StepRecord>& steps) {
  std::vector<double> own, found(steps.size());
  for (const StepRecord& step : steps) own.push_back(own_time(step));
  const double usual = median(std::move(own));
  std::size_t first = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].run_queue_ns == kNotKnown) continue;
    share_out(static_cast<double>(steps[i].run_queue_ns), usual, std::span(steps).subspan(first, i + 1 - first),
              &found[first]);
    first = i + 1;
  }
  return found;
}

// One step of all ranks.
struct Row {
  std::vector<const StepRecord*> steps;  // by place in `ranks`
  std::map<int, double> waits;           // of all ranks, by the rank that they wait for
  double all = 0;
};

std::vector<Row> rows_of(std::span<const RankSteps> ranks) {
  std::vector<Row> rows;
  for (const StepRecord& step : ranks.front().steps) {
    Row row;
    for (const RankSteps& rank : ranks) {
      const StepRecord* found = &rank == ranks.data() ? &step : together_with(step, rank.steps);
      if (found == nullptr) break;
      row.steps.push_back(found);
      row.all += bar_of(*found, Bar::kSkew);
      for (std::size_t i = 0; i < StepRecord::kLateRanks; ++i) {
        const double skew = nanoseconds(found->late_skews[i]);
        if (skew <= 0) continue;
        row.waits[found->late_ranks[i]] += skew;
      }
    }
    if (row.steps.size() == ranks.size()) rows.push_back(std::move(row));
  }
  return rows;
}

class Search {
 public:
  Search(std::span<const RankSteps> ranks, std::vector<Row> rows) : ranks_(ranks), rows_(std::move(rows)) {
    for (const RankSteps& rank : ranks_) without_core_.push_back(without_core(rank.steps));
  }

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
    if (const std::vector<int> host = late_host(); !host.empty() && blame(host, waits, all)) {
      found_.host = host;
    } else if (most != waits.end() && most->first >= 0 && blame({most->first}, waits, all)) {
      found_.rank = most->first;
    } else {
      look_for_data();
    }
    return found_;
  }

 private:
  // The ranks of a host whose ranks are late alike, and the others are not: a rank is late by what it waits less than
  // the rank that waits most. Empty: there is none, or it has one rank.
  std::vector<int> late_host() const {
    std::map<int, std::vector<double>> late;  // by host: of its ranks, the sums
    for (std::size_t place = 0; place < ranks_.size(); ++place) {
      double sum = 0;
      for (const Row& row : rows_) {
        double most = 0;
        for (const StepRecord* step : row.steps) most = std::max(most, bar_of(*step, Bar::kSkew));
        sum += most - bar_of(*row.steps[place], Bar::kSkew);
      }
      late[ranks_[place].host].push_back(sum);
    }
    double spread = 0;
    std::vector<std::pair<double, int>> hosts;
    for (const auto& [host, sums] : late) {
      spread = std::max(spread, std::ranges::max(sums) - std::ranges::min(sums));
      hosts.emplace_back(median(sums), host);
    }
    std::ranges::sort(hosts, std::greater());
    std::vector<int> found;
    if (hosts.size() < 2 || late[hosts[0].second].size() < 2) return found;
    const double distance = hosts[0].first - hosts[1].first;
    if (distance <= 0 || distance < kHostDistance * spread) return found;
    for (const RankSteps& rank : ranks_) {
      if (rank.host == hosts[0].second) found.push_back(rank.rank);
    }
    return found;
  }

  // Whether most waits are for these ranks, in steps in which one of them was last. Then says when and why.
  bool blame(const std::vector<int>& ranks, const std::map<int, double>& waits, double all) {
    const auto is_one = [&](int rank) { return std::ranges::find(ranks, rank) != ranks.end(); };
    std::vector<double> late(rows_.size()), as_last;
    double of_last = 0, share = 0;
    for (const auto& [rank, wait] : waits) share += is_one(rank) ? wait / all : 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      late[i] = late_in(rows_[i], is_one);
      const auto last = std::ranges::max_element(rows_[i].waits, {}, &std::pair<const int, double>::second);
      if (last == rows_[i].waits.end() || !is_one(last->first)) continue;
      for (const auto& [rank, wait] : rows_[i].waits) of_last += is_one(rank) ? wait : 0;
      as_last.push_back(late[i]);
    }
    if (share < kOwnShare || of_last < kOwnShare * all) return false;
    found_.share = share;
    found_.late = Duration(static_cast<std::int64_t>(heavy_median(as_last)));
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (late[i] < nanoseconds(found_.late) / 2) continue;
      late_rows_.push_back(i);
      late_sum_ += late[i];
    }
    for (std::size_t place = 0; place < ranks_.size(); ++place) {
      if (is_one(ranks_[place].rank)) late_places_.push_back(place);
    }
    found_.steps = static_cast<double>(late_rows_.size()) / static_cast<double>(rows_.size());
    say_when();
    say_why();
    return true;
  }

  // What the median of the other ranks waits for these ranks, as of what they do longer.
  template <class IsOne>
  double late_in(const Row& row, IsOne is_one) const {
    std::vector<double> waits;
    for (std::size_t place = 0; place < ranks_.size(); ++place) {
      if (is_one(ranks_[place].rank)) continue;
      double sum = 0;
      for (std::size_t i = 0; i < StepRecord::kLateRanks; ++i) {
        const double skew = nanoseconds(row.steps[place]->late_skews[i]);
        if (skew > 0 && is_one(row.steps[place]->late_ranks[i])) sum += skew;
      }
      waits.push_back(sum);
    }
    return median(std::move(waits));
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
    look_for_data();
  }

  // Whether the time of a step follows the amount of its data: on the late ranks, or without one on most.
  void look_for_data() {
    std::vector<double> found;
    for (std::size_t place = 0; place < ranks_.size(); ++place) {
      if (!late_places_.empty() && !is_late(place)) continue;
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
    if (late_places_.empty()) return;  // on another host
    const auto covers = [&](Cause cause, auto of) {
      const double excess = excess_of(of);
      if (excess < kMostOfIt * late_sum_) return false;
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
    if (covers(Cause::kNoCore, [&](const StepRecord& step, std::size_t place) {
          return without_core_[place][static_cast<std::size_t>(&step - ranks_[place].steps.data())];
        }))
      return;
    Bar best = Bar::kInput;
    double most = -1;
    for (std::size_t bar = 0; bar <= index_of(Bar::kBetween); ++bar) {
      const double excess = excess_of([&](const StepRecord& step, std::size_t) { return nanoseconds(step.bars[bar]); });
      if (excess > most) best = static_cast<Bar>(bar), most = excess;
    }
    if (covers(Cause::kBar, [&](const StepRecord& step, std::size_t) { return bar_of(step, best); })) found_.bar = best;
  }

  bool is_late(std::size_t place) const { return std::ranges::find(late_places_, place) != late_places_.end(); }

  // Over the late rows: how much more the late ranks have, in the median, than the median of the others.
  template <class Of>
  double excess_of(Of of) const {
    double sum = 0;
    for (const std::size_t i : late_rows_) {
      const std::vector<const StepRecord*>& steps = rows_[i].steps;
      std::vector<double> own, others;
      for (std::size_t place = 0; place < steps.size(); ++place) {
        (is_late(place) ? own : others).push_back(of(*steps[place], place));
      }
      sum += median(own) - median(others);
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
  std::vector<std::vector<double>> without_core_;  // by place and step
  std::vector<std::size_t> late_rows_;             // with at least half of Straggler::late
  std::vector<std::size_t> late_places_;           // of the rank or of the host's ranks; empty: it is not among `ranks`
  double late_sum_ = 0;                            // over late_rows_
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
