// The guard of `horo run` is an ancestor of all processes of its job, except for those in another pid namespace, which
// may still have inherited the table. The processes between the guard and this one show which rank it is.
#include "horo/base/run_place.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "horo/base/ancestors.h"
#include "horo/base/error.h"
#include "horo/base/mutex.h"

namespace horo {
namespace {

constexpr const char* kTableName = "horo-run";

std::shared_ptr<RunTable> table_of(pid_t pid, int fd) {
  const int own = open_of(pid, fd, O_RDWR);
  std::optional<RunTable> table = own < 0 ? std::nullopt : RunTable::map(own);
  return table ? std::make_shared<RunTable>(std::move(*table)) : nullptr;
}

bool is_of_this_user(pid_t pid) {
  struct stat status {};
  return ::stat(("/proc/" + std::to_string(pid)).c_str(), &status) == 0 && status.st_uid == ::geteuid();
}

// -1: none of the processes is a rank's.
int rank_among(const RunTable& table, const std::vector<pid_t>& pids) {
  for (int rank = 0; rank < table.ranks(); ++rank) {
    const pid_t process = table.process(rank);
    if (process != 0 && std::find(pids.begin(), pids.end(), process) != pids.end()) return rank;
  }
  return -1;
}

struct StartSite {
  Mutex mutex;
  std::string text GUARDED_BY(mutex);
};

// Of the process, as a caller has one start at a time.
StartSite& start_site() {
  static StartSite one;
  return one;
}

std::string ending_text(int status) {
  return WIFEXITED(status) ? "exit code " + std::to_string(WEXITSTATUS(status))
                           : "signal " + std::to_string(WTERMSIG(status));
}

bool has_launcher(const Lookup& get) {
  return get("HORO_RANK") != nullptr || get("HORO_SIZE") != nullptr || !detect_launcher(get).name.empty();
}

RunTable::Variables variables_in_run(const Lookup& get) {
  if (has_launcher(get)) return {};
  const RunPlace place = find_run_place();
  if (place.hidden_guard != 0) {
    throw std::invalid_argument(
        "horo run (process " + std::to_string(place.hidden_guard) + ") has started this process, which has none of " +
        "its variables, and may not look them up there: sudo, or another program that changes the user, has cleared " +
        "the environment. Start horo run itself as that user; a world of one rank needs HORO_RANK=0 and HORO_SIZE=1");
  }
  if (!place.table || place.local_rank < 0 || place.is_below_rank) return {};
  return place.table->variables(place.local_rank);
}

}  // namespace

RunPlace find_run_place() {
  RunPlace place;
  const pid_t guard = ancestor_named(kGuardName);
  // Of another user: its job is not joined, also not by a process of root (sudo), which could read the table.
  if (guard != 0 && !is_of_this_user(guard)) {
    place.hidden_guard = guard;
    return place;
  }
  const std::optional<int> fd = memory_file_of(guard == 0 ? ::getpid() : guard, kTableName);
  if (!fd) {
    place.hidden_guard = guard;
    return place;
  }
  if (*fd < 0) return place;
  place.table = table_of(guard == 0 ? ::getpid() : guard, *fd);
  if (!place.table) return place;
  place.guard = guard;
  const std::vector<pid_t> pids = lineage(guard);
  if (guard != 0) place.local_rank = rank_among(*place.table, pids);
  if (place.local_rank >= 0 && pids.size() > 1) {
    const pid_t holder = place.table->holder(place.local_rank);
    place.is_below_rank = holder != 0 && std::find(pids.begin() + 1, pids.end(), holder) != pids.end();
  }
  return place;
}

RunTable::Variables lost_variables() {
  return variables_in_run([](const char* name) { return std::getenv(name); });
}

Lookup with_place_in_run(const Lookup& get) {
  const RunTable::Variables found = variables_in_run(get);
  if (found.empty()) return get;
  return [found, get](const char* name) -> const char* {
    if (const char* value = get(name)) return value;
    const auto at = found.find(name);
    return at == found.end() ? nullptr : at->second.c_str();
  };
}

// A process that has yet to join has a world of its own until then.
RunPlace place_of_rank(const Config& config) {
  RunPlace place = find_run_place();
  if (!place.table) return place;
  if (place.local_rank < 0 || place.local_rank != config.local_rank || place.is_below_rank) return {};
  const RunTable::Variables job = place.table->variables(place.local_rank);
  const auto address = job.find("HORO_ADDR");
  const bool is_other = address != job.end() && !config.addr.empty() && address->second != config.addr;
  return is_other || job.contains("HORO_JOINS") != config.joins ? RunPlace{} : place;
}

void set_start_site(std::string site) {
  StartSite& one = start_site();
  MutexLock lock(one.mutex);
  one.text = std::move(site);
}

RunStart::RunStart(const Config& config) : config_(config) {
  if (config.size == 1 || config.addr.empty()) return;
  const RunPlace place = find_run_place();
  if (!place.table || config.local_rank >= place.table->ranks()) return;
  const RunTable::Variables job = place.table->variables(config.local_rank);
  const auto is_job = [&](const char* name, const std::string& value) {
    const auto found = job.find(name);
    return found != job.end() && found->second == value;
  };
  const bool is_rank = is_job("HORO_RANK", std::to_string(config.rank));
  if (!is_rank || !is_job("HORO_SIZE", std::to_string(config.size)) || !is_job("HORO_ADDR", config.addr)) return;
  table_ = place.table;
  table_->set_holder(config.local_rank, ::getpid());
  StartSite& one = start_site();
  MutexLock lock(one.mutex);
  table_->set_start(config.local_rank, Clock::now(), one.text);
}

RunStart::~RunStart() {
  if (table_) table_->set_start(config_.local_rank, {});
}

void RunStart::check() const {
  if (!table_) return;
  const RunTable& table = *table_;
  const int own = table.starts(config_.local_rank);
  for (int local = 0; local < table.ranks(); ++local) {
    const std::optional<int> end = table.end(local);
    if (!end || table.starts(local) > own) continue;
    const int rank = config_.rank - config_.local_rank + local;
    const std::string how = "rank " + std::to_string(rank) + " has ended (" + ending_text(*end) + ") ";
    const std::string when = table.holder(local) == 0 ? "without horo.init()"
                             : own > 0                ? "and does not call horo.init() again"
                                                      : "before all ranks were connected";
    throw PeerLost(rank, how + when + "; the other ranks wait for it in init()");
  }
}

void RunStart::done() {
  if (table_) table_->count_start(config_.local_rank);
}

}  // namespace horo
