#include "tools/horo/run/launcher.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <system_error>

#include "tools/horo/machine/cores.h"
#include "tools/horo/run/guard.h"
#include "tools/horo/run/lines.h"
#include "tools/horo/run/local_world.h"
#include "tools/horo/run/rank_settings.h"
#include "tools/horo/run/supervisor.h"

namespace horo::tools {
namespace {

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw std::invalid_argument("--output-dir " + folder + ": " + error.message());
}

// The value in a plan; a placeholder for a value that only a start determines.
std::string plain_value(const Launch& launch, const std::string& name, const std::string& value) {
  if (name == "HORO_KEY_FD")
    return launch.key_file.empty() ? "N  # a key drawn for the job" : "N  # the key file's key";
  if (name == "HORO_ADDR" && launch.addr.empty()) return "127.0.0.1:PORT  # a free one";
  return quoted_for_shell(value);
}

}  // namespace

std::string quoted_for_shell(const std::string& word) {
  const bool is_plain = !word.empty() && word.find_first_not_of(
                                             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                             "0123456789_-+=./:,@%") == std::string::npos;
  if (is_plain) return word;
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

int Launch::first_rank() const {
  return std::accumulate(ranks_by_host.begin(), ranks_by_host.begin() + static_cast<std::ptrdiff_t>(host), 0);
}

int Launch::size() const {
  return std::accumulate(ranks_by_host.begin(), ranks_by_host.end(), 0);
}

int Launch::slots() const {
  return std::max(ranks(), max_ranks);
}

namespace {

// Those of another host's part are told where the job was started.
void tell_unknown_settings(const Launch& launch, const LocalWorld& world) {
  std::string told;
  for (const std::string& line : check_settings(world.environment(world.slot(0), launch.first_rank()), launch.cwd)) {
    told += line + "\n";
    if (!launch.is_part) std::cerr << folded(launch.title + ": warning: " + line + "\n");
  }
  if (RunTable* table = world.table()) table->set_told(told);
}

bool may_restart(const RunTable& table, int restarts, int most) {
  return table.has_failed() && table.checkpoints().count > 0 && restarts < most;
}

// What is done after a failure; empty: the job was ended from outside.
std::string text_of_restart(const RunTable& table, int restarts, int most) {
  if (!table.has_failed()) return "";
  const RunTable::Checkpoints published = table.checkpoints();
  const std::string option = " (--restart-from-checkpoint " + std::to_string(most) + ")";
  if (published.count == 0) return "no new start: since the last one no checkpoint was published" + option;
  const std::string step = "; the newest checkpoint is of step " + std::to_string(published.last_step) + option;
  if (restarts == most) return "no new start: there were " + std::to_string(most) + step;
  return "new start " + std::to_string(restarts + 1) + " of all ranks" + step;
}

}  // namespace

int launch(const Launch& given) {
  Launch launch = given;
  if (!launch.output_dir.empty()) make_folder(launch.output_dir);
  for (int restarts = 0;; ++restarts) {
    const LocalWorld world(launch);
    tell_unknown_settings(launch, world);
    const int code =
        run_guarded(launch.title, [&](int lifeline_fd) { return RankSupervisor(launch, world, lifeline_fd).run(); });
    if (launch.restarts_from_checkpoint == 0 || code == 0 || !world.table()) return code;
    const std::string text = text_of_restart(*world.table(), restarts, launch.restarts_from_checkpoint);
    if (!text.empty()) std::cerr << folded(launch.title + ": " + text + "\n");
    if (!may_restart(*world.table(), restarts, launch.restarts_from_checkpoint)) return code;
    launch.goes_on = true;
  }
}

void print_plan(const Launch& launch) {
  const LocalWorld world(launch);
  for (int rank = 0; rank < launch.ranks(); ++rank) {
    const std::vector<int>& cores = world.slot(rank).cores;
    std::cout << "rank " << launch.first_rank() + rank << ", cores "
              << (cores.empty() ? cores_text(allowed_cores()) + " (not bound)" : cores_text(cores)) << "\n";
    if (!launch.cwd.empty()) std::cout << "  in " << launch.cwd << "\n";
    for (const auto& [name, value] : world.variables(world.slot(rank), launch.first_rank() + rank)) {
      std::cout << "  " << name << "=" << plain_value(launch, name, value) << "\n";
    }
    std::cout << " ";
    for (const std::string& word : launch.command) std::cout << " " << quoted_for_shell(word);
    std::cout << "\n";
  }
}

}  // namespace horo::tools
