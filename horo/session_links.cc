#include "horo/session_links.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

#include "horo/base/run_place.h"
#include "horo/base/say.h"
#include "horo/steps/step_board.h"

namespace horo {

Config before_join(const Config& config) {
  if (!config.joins) return config;
  checked_to_join(config);
  Config alone = config;
  alone.rank = alone.local_rank = 0;
  alone.size = alone.local_size = 1;
  alone.min_np = 0;
  alone.guard_fd = -1;
  alone.joins = false;
  alone.timeline.clear();
  return alone;
}

Topology topology_before_join(const Config& config) {
  const int size = std::max(config.local_size, 2);
  const int rank = config.local_rank > 0 ? config.local_rank : size - 1;
  return {rank, size, config.local_rank, config.local_size, 0, 1, 0, config.min_np};
}

const Config& checked_to_join(const Config& config) {
  if (config.joins && config.guard_fd >= 0 && config.min_np > 0) return config;
  throw std::invalid_argument("join: rank " + std::to_string(config.rank) +
                              " was not started by horo run to join a job that runs (HORO_JOINS)");
}

std::unique_ptr<Timeline> timeline_for(const Config& config) {
  auto timeline = std::make_unique<Timeline>();
  if (config.timeline.empty()) return timeline;
  try {
    timeline->start(timeline_path(config.timeline, config.rank), config.rank, config.size);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(say("HORO_TIMELINE=", config.timeline, ": rank ", config.rank, ": ", error.what()));
  }
  return timeline;
}

std::unique_ptr<StepFile> step_file_for(const Config& config) {
  if (config.steps.empty() || config.accounting == "off") return nullptr;
  const std::string path = timeline_path(config.steps, config.rank);
  try {
    return std::make_unique<StepFile>(path, config.rank);
  } catch (const std::exception& error) {
    throw std::invalid_argument(
        say("HORO_STEPS=", config.steps, ": rank ", config.rank, ": cannot write ", path, ": ", error.what()));
  }
}

std::unique_ptr<Steps> steps_for(const Config& config, StepFile* file, Timeline* timeline, bool is_provisional) {
  if (config.accounting == "off") return std::make_unique<Steps>(false, nullptr);
  const std::shared_ptr<RunTable> table = is_provisional ? nullptr : place_of_rank(config).table;
  std::shared_ptr<StepBoard> board;
  if (table) board = std::make_shared<StepBoard>(table->board(config.local_rank));
  const auto written = [file, table, board, rank = config.rank, size = config.size](const StepRecord& record) {
    if (file != nullptr) file->add(record);
    if (board) board->write(rank, size, record);
  };
  const auto notice = [table, board]() -> std::optional<TimePoint> {
    const auto told = table ? table->notice() : std::nullopt;
    if (!told) return std::nullopt;
    return board->ended() >= told->steps ? std::optional(told->until) : std::nullopt;
  };
  const auto told = [board] {
    if (board) board->end_step();
  };
  return std::make_unique<Steps>(true, written, timeline, notice, told);
}

// MPI is started once in a process, and an exchange of the caller may work only once.
Reconnect reconnect_by(const Config& config) {
  if (config.backend == "mpi" || config.meet_by == MeetBy::kExchange) return nullptr;
  return [config](std::uint32_t epoch) { return find_others(config, epoch); };
}

FirstLinks first_links_by(const Config& config, const Exchange& exchange) {
  return [&config, &exchange](const IsCancelled& is_cancelled) {
    return find_others(config, kFirstEpoch, exchange, is_cancelled);
  };
}

FirstLinks given(Links links) {
  return [given = std::make_shared<Links>(std::move(links))](const IsCancelled&) { return std::move(*given); };
}

}  // namespace horo
