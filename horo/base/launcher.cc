// One function per row of the header's table: it checks for the launcher's variables and reads them.
#include "horo/base/launcher.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace horo {
namespace {

constexpr std::int64_t kMostOfAVariable = std::numeric_limits<int>::max();
constexpr std::int64_t kFirstReservedStep = 0xfffffff0;  // Slurm's batch, extern and interactive steps lie above it

std::string value_of(const Lookup& get, const char* variable) {
  const char* value = get(variable);
  return value == nullptr ? "" : value;
}

bool all_set(const Lookup& get, std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    if (get(variable) == nullptr) return false;
  }
  return true;
}

// "A=1, B=2", of those that are set.
std::string list(const Lookup& get, std::initializer_list<const char*> variables) {
  std::string text;
  for (const char* variable : variables) {
    if (get(variable) == nullptr) continue;
    text.append(text.empty() ? "" : ", ").append(variable).append("=").append(get(variable));
  }
  return text;
}

std::optional<std::int64_t> parse(std::string_view text) {
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

class VariableReader {
 public:
  VariableReader(const Lookup& get, const char* launcher) : get_(get), launcher_(launcher) {}

  int number(const char* variable, std::int64_t low, std::int64_t high) const {
    const std::optional<std::int64_t> found = parse(value_of(get_, variable));
    if (found && *found >= low && *found <= high) return static_cast<int>(*found);
    refuse(variable, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  int number_or(const char* variable, std::int64_t high, int otherwise) const {
    return get_(variable) == nullptr ? otherwise : number(variable, 0, high);
  }
  [[noreturn]] void refuse(const char* variable, const std::string& expected) const {
    throw std::invalid_argument(std::string(variable) + "=\"" + value_of(get_, variable) + "\", which " + launcher_ +
                                " sets: expected " + expected);
  }

 private:
  const Lookup& get_;
  const char* launcher_;
};

struct Names {
  const char* rank;
  const char* size;
};

// Without local numbers the world counts as one host.
Launcher read_world(const Lookup& get, const char* launcher, const Names& names) {
  const VariableReader reader(get, launcher);
  Launcher found;
  found.name = launcher;
  found.found = list(get, {names.rank, names.size});
  found.size = found.local_size = reader.number(names.size, 1, kMostOfAVariable);
  found.rank = found.local_rank = reader.number(names.rank, 0, found.size - 1);
  return found;
}

void read_place(const Lookup& get, const Names& names, Launcher& found) {
  if (!all_set(get, {names.rank, names.size})) return;
  const VariableReader reader(get, found.name.c_str());
  found.found += ", " + list(get, {names.rank, names.size});
  found.local_size = reader.number(names.size, 1, found.size);
  found.local_rank = reader.number(names.rank, 0, found.local_size - 1);
}

// HORO_*, as far as other launchers can contradict them; config_from reads and checks their values.
std::optional<Launcher> horo_variables(const Lookup& get) {
  if (get("HORO_RANK") == nullptr && get("HORO_SIZE") == nullptr) return {};
  Launcher found;
  found.found = list(get, {"HORO_RANK", "HORO_SIZE"});
  found.rank = static_cast<int>(parse(value_of(get, "HORO_RANK")).value_or(-1));
  found.size = static_cast<int>(parse(value_of(get, "HORO_SIZE")).value_or(-1));
  return found;
}

std::optional<Launcher> torchrun(const Lookup& get) {
  if (horo_variables(get) && get("TORCHELASTIC_RUN_ID") == nullptr) return {};  // `horo run` sets the same variables
  if (!all_set(get, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})) return {};
  Launcher found = read_world(get, "torchrun", {"RANK", "WORLD_SIZE"});
  read_place(get, {"LOCAL_RANK", "LOCAL_WORLD_SIZE"}, found);
  found.incarnation = static_cast<std::uint32_t>(
      VariableReader(get, "torchrun").number_or("TORCHELASTIC_RESTART_COUNT", kMostOfAVariable, 0));
  const std::string host = value_of(get, "MASTER_ADDR");
  const bool is_v6 = host.find(':') != std::string::npos && host.front() != '[';
  found.hub = (is_v6 ? "[" + host + "]" : host) + ":" + value_of(get, "MASTER_PORT");
  found.job = list(get, {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"});
  return found;
}

std::optional<Launcher> open_mpi(const Lookup& get) {
  if (!all_set(get, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) return {};
  Launcher found = read_world(get, "mpirun", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"});
  read_place(get, {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}, found);
  found.job = list(get, {"OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri", "PMIX_NAMESPACE"});
  return found;
}

std::optional<Launcher> hydra(const Lookup& get) {
  if (!all_set(get, {"PMI_RANK", "PMI_SIZE"})) return {};
  Launcher found = read_world(get, "mpiexec", {"PMI_RANK", "PMI_SIZE"});
  read_place(get, {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, found);
  return found;
}

bool is_shell(std::string_view job_name) {
  for (const char* shell : {"bash", "sh", "dash", "zsh", "fish", "ksh", "csh", "tcsh", "interactive"}) {
    if (job_name == shell) return true;
  }
  return false;
}

// Slurm's list of tasks by node: "2(x3),1" is 2, 2, 2, 1. Empty if the text is not such a list or is too short.
std::optional<std::int64_t> tasks_on_node(std::string_view list, std::int64_t node) {
  while (!list.empty()) {
    std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    std::optional<std::int64_t> repeat = 1;
    if (const std::size_t times = item.find("(x"); times != std::string_view::npos && item.back() == ')') {
      repeat = parse(item.substr(times + 2, item.size() - times - 3));
      item = item.substr(0, times);
    }
    if (!repeat || *repeat < 1) return {};
    if (node < *repeat) return parse(item);
    node -= *repeat;
  }
  return {};
}

void read_slurm_place(const Lookup& get, Launcher& found) {
  const VariableReader reader(get, "srun");
  const char* tasks = "SLURM_STEP_TASKS_PER_NODE";
  if (get(tasks) == nullptr) tasks = "SLURM_TASKS_PER_NODE";
  if (!all_set(get, {tasks, "SLURM_LOCALID"})) return;
  found.found += ", " + list(get, {"SLURM_LOCALID", "SLURM_NODEID", tasks});
  const int node = reader.number_or("SLURM_NODEID", kMostOfAVariable, 0);
  const std::optional<std::int64_t> local_size = tasks_on_node(value_of(get, tasks), node);
  if (!local_size || *local_size < 1 || *local_size > found.size) {
    reader.refuse(tasks, "a list such as 2(x3),1, with the number of tasks on node SLURM_NODEID=" +
                             std::to_string(node) + " of this step");
  }
  found.local_size = static_cast<int>(*local_size);
  found.local_rank = reader.number("SLURM_LOCALID", 0, found.local_size - 1);
}

std::optional<Launcher> slurm(const Lookup& get) {
  if (!all_set(get, {"SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_ID"})) return {};
  const std::optional<std::int64_t> step = parse(value_of(get, "SLURM_STEP_ID"));
  if (!step || *step < 0 || *step >= kFirstReservedStep) return {};
  if (*step == 0 && get("SLURM_PTY_PORT") != nullptr && is_shell(value_of(get, "SLURM_JOB_NAME"))) return {};
  const char* size = get("SLURM_STEP_NUM_TASKS") != nullptr ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  if (get(size) == nullptr) return {};
  Launcher found = read_world(get, "srun", {"SLURM_PROCID", size});
  read_slurm_place(get, found);
  found.incarnation =
      static_cast<std::uint32_t>(VariableReader(get, "srun").number_or("SLURM_RESTART_COUNT", kMostOfAVariable, 0));
  found.job = list(get, {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"});
  return found;
}

std::string launcher_text(const Launcher& launcher) {
  return (launcher.name.empty() ? "horo run, or the program that set them" : launcher.name) + " (" + launcher.found +
         ")";
}

[[noreturn]] void refuse_both(const Launcher& one, const Launcher& other) {
  throw std::invalid_argument(
      "two launchers contradict each other: " + launcher_text(one) + " and " + launcher_text(other) +
      " differ in rank or size. Unset the variables of the one that did not start this process");
}

std::string remark_on(const Lookup& get) {
  if (!all_set(get, {"RANK", "WORLD_SIZE"}) || value_of(get, "WORLD_SIZE") == "1") return "";
  return list(get, {"RANK", "WORLD_SIZE"}) +
         " are set, but not all of LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them: "
         "they are not taken, and this process is a world of its own";
}

}  // namespace

Launcher detect_launcher(const Lookup& get) {
  std::vector<Launcher> all;
  for (const auto look : {horo_variables, torchrun, open_mpi, hydra}) {
    if (std::optional<Launcher> found = look(get)) all.push_back(std::move(*found));
  }
  for (const Launcher& one : all) {
    if (one.rank != all.front().rank || one.size != all.front().size) refuse_both(all.front(), one);
  }
  if (!all.empty() && all.front().name != "mpiexec") return all.front();
  const std::optional<Launcher> step = slurm(get);
  if (!step || (!all.empty() && (step->rank != all.front().rank || step->size != all.front().size))) {
    if (!all.empty()) return all.front();
    Launcher none;
    none.remark = remark_on(get);
    return none;
  }
  return *step;
}

}  // namespace horo
