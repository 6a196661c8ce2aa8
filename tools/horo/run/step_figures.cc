#include "tools/horo/run/step_figures.h"

#include <algorithm>

#include "horo/steps/straggler.h"
#include "tools/horo/run/step_text.h"

namespace horo::tools {
namespace {

constexpr std::chrono::seconds kRecent{5};  // the steps that a status shows end so long before the last one
constexpr std::size_t kFewestRecent = 8;    // or more, so that there are as many

StepFigures recent_figures(const StepBoard::View& view, TimePoint now) {
  StepFigures figures;
  figures.steps = view.sums.steps;
  if (view.last.empty()) return figures;
  const TimePoint end = view.last.back().end;
  BoardSums sums;
  for (std::size_t i = view.last.size(); i > 0; --i) {
    const StepRecord& step = view.last[i - 1];
    if (end - step.end > kRecent && view.last.size() - i >= kFewestRecent) break;
    sums.add(step);
  }
  StepFigures recent = figures_of(sums);
  recent.steps = view.sums.steps;
  recent.age_s = std::max(0.0, std::chrono::duration<double>(now - end).count());
  return recent;
}

// Ranks have other numbers in other epochs.
std::uint32_t last_epoch_of(const std::map<int, StepBoard::View>& views) {
  std::uint32_t last = 0;
  for (const auto& [id, view] : views) {
    for (const StepRecord& step : view.last) last = std::max(last, step.epoch);
  }
  return last;
}

void keep_epoch(std::map<int, StepBoard::View>& views, std::uint32_t epoch) {
  for (auto& [id, view] : views) std::erase_if(view.last, [&](const StepRecord& step) { return step.epoch != epoch; });
}

// What each rank has made the others wait, in a step of theirs.
std::map<std::int64_t, std::int64_t> waits_in(const std::vector<BoardSums>& all) {
  std::map<std::int64_t, std::int64_t> waits;
  for (const BoardSums& sums : all) {
    for (const BoardSums::Late& late : sums.late) {
      if (late.skew > 0 && sums.steps > 0) waits[late.rank] += late.skew / sums.steps;
    }
  }
  return waits;
}

}  // namespace

StepFigures figures_of(const BoardSums& sums) {
  StepFigures figures;
  figures.steps = figures.counted = sums.steps;
  if (sums.steps <= 0) return figures;
  figures.step = sums.wall / sums.steps;
  for (std::size_t bar = 0; bar < kBars; ++bar) figures.bars[bar] = sums.bars[bar] / sums.steps;
  figures.known = static_cast<std::uint32_t>(sums.known);
  figures.hidden_transfer = sums.hidden_transfer / sums.steps;
  if (sums.sampled_wall > 0)
    figures.samples_per_s = static_cast<double>(sums.samples) * 1e9 / static_cast<double>(sums.sampled_wall);
  return figures;
}

void StepFiguresOfRanks::started(int id, int local_rank) {
  if (table_ == nullptr || local_rank >= table_->ranks()) return;
  ranks_[id] = {local_rank};
}

void StepFiguresOfRanks::ended(int id) {
  const auto found = ranks_.find(id);
  if (found == ranks_.end()) return;
  found->second.last = view_of(found->second);
  found->second.local_rank = -1;
}

void StepFiguresOfRanks::stopped(int id, bool is_stopped, TimePoint now) {
  const auto found = ranks_.find(id);
  if (found == ranks_.end() || found->second.is_stopped == is_stopped) return;
  Rank& rank = found->second;
  rank.is_stopped = is_stopped;
  if (!is_stopped) {
    rank.stops.back().end = now;
    return;
  }
  if (rank.stops.size() == kMostStops) rank.stops.erase(rank.stops.begin());
  rank.stops.push_back({now, TimePoint::max()});
}

std::optional<StepBoard::View> StepFiguresOfRanks::view_of(const Rank& rank) const {
  return rank.local_rank < 0 ? rank.last : StepBoard(table_->board(rank.local_rank)).read();
}

std::map<int, StepBoard::View> StepFiguresOfRanks::views(bool with_ended) const {
  std::map<int, StepBoard::View> found;
  for (const auto& [id, rank] : ranks_) {
    if (rank.local_rank < 0 && !with_ended) continue;
    if (auto view = view_of(rank)) found.emplace(id, std::move(*view));
  }
  for (int id = 0; table_ != nullptr && id < table_->others(); ++id) {
    if (ranks_.contains(id)) continue;
    if (auto view = StepBoard(table_->other_board(id)).read()) found.emplace(id, std::move(*view));
  }
  return found;
}

int StepFiguresOfRanks::host_of(int id) const {
  int host = 0, first_of_next = 0;
  for (const int ranks : ranks_by_host_) {
    if (id < (first_of_next += ranks)) return host;
    ++host;
  }
  return 0;  // a rank that was started later: there is one host
}

// ids: the number of each present rank.
std::string StepFiguresOfRanks::late_text(const std::map<int, StepBoard::View>& views,
                                          const std::map<int, int>& ids) const {
  std::vector<RankSteps> ranks;
  for (const auto& [rank, id] : ids) {
    const auto view = views.find(id);
    if (view == views.end()) continue;
    const auto here = ranks_.find(id);
    const std::vector<TimeSpan> stops = here == ranks_.end() ? std::vector<TimeSpan>() : here->second.stops;
    ranks.push_back({rank, view->second.last, stops, host_of(id)});
  }
  std::optional<Straggler> found = find_straggler(ranks);
  if (!found) return "";
  if (const auto id = ids.find(found->rank); id != ids.end()) found->rank = id->second;
  for (int& rank : found->host) rank = ids.at(rank);
  return straggler_text(*found);
}

void StepFiguresOfRanks::describe(JobStatus& status, TimePoint now) const {
  std::map<int, StepBoard::View> found = views(false);
  for (MemberStatus& member : status.members) {
    if (const auto view = found.find(member.id); view != found.end()) member.steps = recent_figures(view->second, now);
  }
  keep_epoch(found, last_epoch_of(found));
  std::map<int, int> ids;
  for (const MemberStatus& member : status.members) {
    if (member.rank && found.contains(member.id)) ids[*member.rank] = member.id;
  }
  std::vector<BoardSums> recent;
  for (const auto& [id, view] : found) {
    if (!status.min_ranks) ids[id] = id;  // those of other hosts are no members of the status of a static job
    BoardSums sums;
    for (const StepRecord& step : view.last) sums.add(step);
    recent.push_back(sums);
  }
  const auto waits = waits_in(recent);
  for (MemberStatus& member : status.members) {
    const auto of = waits.find(member.rank.value_or(-1));
    if (member.steps) member.steps->waits = of == waits.end() ? 0 : of->second;
  }
  status.late = late_text(found, ids);
}

void StepFiguresOfRanks::add_others(JobStatus& status, TimePoint now) const {
  for (const auto& [id, view] : views(false)) {
    if (std::ranges::find(status.members, id, &MemberStatus::id) != status.members.end()) continue;
    MemberStatus member;
    member.id = id;
    member.rank = id;
    member.steps = recent_figures(view, now);
    status.members.push_back(std::move(member));
  }
}

// Ranks are in the same step, or one of them is in the next one.
std::optional<std::int64_t> StepFiguresOfRanks::step_after(Duration lead) const {
  std::int64_t last = 0, most = 0;
  for (const auto& [id, rank] : ranks_) {
    if (rank.local_rank < 0) continue;
    const auto view = view_of(rank);
    if (!view || view->sums.steps <= 0) return std::nullopt;
    last = std::max(last, view->ended);
    most = std::max(most, lead.count() * view->sums.steps / std::max<std::int64_t>(view->sums.wall, 1));
  }
  return last > 0 ? std::optional(last + 2 + most) : std::nullopt;
}

JobStatus StepFiguresOfRanks::summary() const {
  JobStatus status;
  const std::map<int, StepBoard::View> found = views(true);
  std::map<int, int> ids;
  std::vector<BoardSums> all;
  for (const auto& [id, view] : found) {
    MemberStatus member;
    member.id = id;
    member.rank = id;
    member.steps = figures_of(view.sums);
    status.members.push_back(member);
    ids[id] = id;
    all.push_back(view.sums);
  }
  if (last_epoch_of(found) > 0) return status;
  const auto waits = waits_in(all);
  for (MemberStatus& member : status.members) {
    const auto of = waits.find(member.id);
    member.steps->waits = of == waits.end() ? 0 : of->second;
  }
  status.late = late_text(found, ids);
  return status;
}

}  // namespace horo::tools
