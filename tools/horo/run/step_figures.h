// What the guard knows of the steps of its ranks: their boards, as figures of a status and for the summary.
#pragma once

#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "horo/base/run_table.h"
#include "horo/steps/job_times.h"
#include "horo/steps/step_board.h"
#include "tools/horo/run/job_status.h"

namespace horo::tools {

// One thread. By the number that a rank has had from its start (MemberId).
class StepFiguresOfRanks {
 public:
  static constexpr std::size_t kMostStops = 64;  // of one rank

  // table: null, or outlives this object. Its boards of other hosts are those of ranks that are not started here.
  // ranks_by_host: the numbers of ranks at the start; those of a host follow one another. Empty: one host.
  explicit StepFiguresOfRanks(const RunTable* table, std::vector<int> ranks_by_host = {})
      : table_(table), ranks_by_host_(std::move(ranks_by_host)) {}

  // A process runs in this slot, has ended, or goes on as another member. What it has written stays.
  void started(int id, int local_rank);
  void ended(int id);
  void stopped(int id, bool is_stopped, TimePoint now);

  // Over the steps of the last seconds, and the sentence on a late rank. Members that have ended have none.
  void describe(JobStatus& status, TimePoint now) const;
  // Adds the ranks of other hosts that are no members of the status, with their figures.
  void add_others(JobStatus& status, TimePoint now) const;
  // Over all steps, for the end of the job: the members with their figures and the late rank. Empty members: no rank
  // has ended a step.
  JobStatus summary() const;
  // The number of a step that no running rank has ended before `lead` is over; nothing: one of them has ended none.
  std::optional<std::int64_t> step_after(Duration lead) const;

 private:
  struct Rank {
    int local_rank = -1;  // -1: ended
    std::optional<StepBoard::View> last = {};
    std::vector<TimeSpan> stops = {};
    bool is_stopped = false;
  };

  std::optional<StepBoard::View> view_of(const Rank& rank) const;
  std::map<int, StepBoard::View> views(bool with_ended) const;
  int host_of(int id) const;
  std::string late_text(const std::map<int, StepBoard::View>& views, const std::map<int, int>& ids) const;

  const RunTable* const table_;
  const std::vector<int> ranks_by_host_;
  std::map<int, Rank> ranks_;
};

}  // namespace horo::tools
