// The start of each contestant.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "bench/against/worlds.h"
#include "bench/peers/harness.h"
#include "horo/base/auth.h"
#include "tools/horo/machine/cores.h"

namespace horo::bench {
namespace {

// The full path of a program in PATH, or empty.
std::string find_program(const std::string& name) {
  const char* all = std::getenv("PATH");
  std::istringstream folders(all == nullptr ? "" : all);
  for (std::string path; std::getline(folders, path, ':');) {
    path.append("/").append(name);
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

[[noreturn]] void refuse_peer(const std::string& name, const std::string& what) {
  throw std::invalid_argument(name + ": " + what +
                              ". tools/setup peers installs what comparisons need; build horo-bench again after it");
}

std::string need_file(const std::string& name, const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0) refuse_peer(name, "there is no " + path + " (--peers names the folder)");
  return path;
}

std::string need_program(const std::string& name, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (std::string path = find_program(word); !path.empty()) return path;
  }
  refuse_peer(name, "there is no " + words.front() + " in PATH");
}

[[noreturn]] void refuse_hosts(const std::string& name) {
  throw std::invalid_argument("--hosts: " + name + " runs on one host only");
}

// $HORO_MPI_LIBRARY, or the plug-in in the build tree of the drivers.
std::string mpi_plugin(const std::string& name, const std::string& drivers) {
  if (const char* given = std::getenv("HORO_MPI_LIBRARY"); given != nullptr && *given != '\0') return given;
  return need_file(name, (std::filesystem::path(drivers) / "../../bindings/c/libhoro_mpi.so").lexically_normal());
}

// $PYTHON, or the .venv of a folder above the drivers, or the system's.
std::string python_for(const std::string& drivers) {
  if (const char* given = std::getenv("PYTHON"); given != nullptr && *given != '\0') return given;
  for (std::filesystem::path folder = drivers; folder.has_relative_path(); folder = folder.parent_path()) {
    const std::filesystem::path python = folder / ".venv/bin/python";
    if (::access(python.c_str(), X_OK) == 0) return python;
  }
  return "python3";
}

std::vector<std::string> environment_with(const std::vector<std::string>& more) {
  std::vector<std::string> variables = more;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text(*variable);
    const std::string name = text.substr(0, text.find('=') + 1);
    const bool is_new = std::none_of(more.begin(), more.end(), [&](const auto& own) { return own.starts_with(name); });
    if (is_new) variables.push_back(text);
  }
  return variables;
}

std::vector<std::string> harness_variables(const Environment& environment, const std::string& name) {
  return {std::string(HARNESS_FOLDER) + "=" + environment.folder(), std::string(HARNESS_CONTESTANT) + "=" + name};
}

constexpr std::ptrdiff_t kFirstPort = 29500;  // of horo's worlds; no other service runs in the namespaces

std::string write_key(const std::string& path) {
  const JobKey key = make_job_key();
  const tools::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (::write(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size())) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  return path;
}

}  // namespace

const std::vector<std::string>& peer_words() {
  static const std::vector<std::string> words{"openmpi", "openmpi-tcp", "mpich", "mpich-tcp", "gloo"};
  return words;
}

const std::vector<std::string>& path_words() {
  static const std::vector<std::string> words{"shm-bucket", "shm-user", "tcp",      "mpi",
                                              "mpi-fast",   "abi",      "abi-1000", "abi-1000-bucket"};
  return words;
}

Contestant peer_named(const std::string& word) {
  const std::size_t dash = word.find("-tcp");
  return dash == std::string::npos ? Contestant{word, "default"} : Contestant{word.substr(0, dash), "tcp"};
}

void World::start_gloo(const Environment& environment) {
  const std::string driver = need_file(name(), environment.drivers() + "/gloo.py");
  for (int rank = 0; rank < ranks_; ++rank) {
    std::vector<std::string> variables = harness_variables(environment, name());
    variables.push_back("RANK=" + std::to_string(rank));
    variables.push_back("WORLD_SIZE=" + std::to_string(ranks_));
    if (environment.hosts().are_namespaces())
      variables.push_back("GLOO_SOCKET_IFNAME=" + environment.hosts().interface());
    std::vector<std::string> command = environment.hosts().prefix(environment.hosts().place(rank, ranks_).host);
    command.insert(command.end(), {python_for(environment.drivers()), driver});
    start_program(command, environment_with(variables));
  }
}

// Open MPI's mpirun and its options, up to the program.
std::vector<std::string> World::openmpi_command(const Environment& environment) const {
  const HostList& hosts = environment.hosts();
  std::vector<std::string> command = hosts.prefix(0);
  command.insert(command.end(), {need_program(name(), {"mpirun.openmpi"}), "--allow-run-as-root"});
  if (ranks_ > tools::usable_cores()) command.emplace_back("--oversubscribe");
  if (hosts.are_namespaces()) {
    const std::string shell = environment.folder() + "/remote_shell";
    std::ofstream(shell) << hosts.remote_shell();
    for (const char* part : {"btl_tcp_if_include", "oob_tcp_if_include"}) {
      command.insert(command.end(), {"--mca", part, hosts.interface()});
    }
    command.insert(command.end(),
                   {"--mca", "plm_rsh_agent", "sh " + shell, "--bind-to", "none", "--host", hosts.slots(ranks_)});
  }
  // The path concerns messages between hosts. Inside a host Open MPI uses its default.
  const bool has_neighbours = hosts.are_namespaces() && ranks_ > static_cast<int>(hosts.size());
  if (contestant_.path == "tcp") {
    command.insert(command.end(), {"--mca", "btl", has_neighbours ? "tcp,vader,self" : "tcp,self"});
  }
  command.insert(command.end(), {"-n", std::to_string(ranks_)});
  return command;
}

void World::start_mpi(const Environment& environment) {
  std::vector<std::string> command, variables = harness_variables(environment, name());
  if (contestant_.library == "openmpi") {
    command = openmpi_command(environment);
  } else {
    if (environment.hosts().are_namespaces()) refuse_hosts(name());
    command = {need_program(name(), {"mpiexec.hydra", "mpirun.mpich", "mpiexec.mpich"}), "-n", std::to_string(ranks_)};
    if (contestant_.path == "tcp") variables.emplace_back("UCX_TLS=tcp,self");
  }
  command.push_back(need_file(name(), environment.drivers() + "/mpi_" + contestant_.library));
  start_program(command, environment_with(variables));
}

// The ranks run under the same mpirun as those of Open MPI.
void World::start_horo_by_mpi(const Environment& environment) {
  if (environment.hosts().are_namespaces()) refuse_hosts(name());
  std::vector<std::string> variables = harness_variables(environment, name());
  variables.emplace_back("HORO_BACKEND=mpi");
  variables.push_back("HORO_MPI_LIBRARY=" + mpi_plugin(name(), environment.drivers()));
  std::vector<std::string> command = openmpi_command(environment);
  command.insert(command.end(), {need_file(name(), environment.drivers() + "/driver_group"), contestant_.path});
  start_program(command, environment_with(variables));
}

void World::start_horo(const Environment& environment) {
  if (contestant_.path.starts_with("mpi")) return start_horo_by_mpi(environment);
  std::vector<std::string> command;
  if (contestant_.path.starts_with("abi")) {
    command = {need_file(name(), environment.drivers() + "/driver_abi"), contestant_.path == "abi" ? "1" : "1000"};
    if (contestant_.path.ends_with("-bucket")) command.emplace_back("bucket");
  } else {
    command = {std::filesystem::read_symlink("/proc/self/exe").string(), "driver", contestant_.path};
  }
  if (environment.hosts().are_namespaces()) return start_horo_on_hosts(environment, command);
  launch_ = std::make_unique<tools::Launch>();
  launch_->ranks_by_host = {ranks_};
  launch_->binding = tools::CoreBinding::kAuto;  // as horo run
  launch_->variables = {{"HORO_TRANSPORT", contestant_.path == "tcp" ? "tcp" : "shm"}};
  local_ = std::make_unique<tools::LocalWorld>(*launch_);
  for (int rank = 0; rank < ranks_; ++rank) {
    const tools::RankSlot& slot = local_->slot(rank);
    std::vector<std::string> variables = local_->environment(slot, rank);
    for (const std::string& variable : harness_variables(environment, name())) variables.push_back(variable);
    tools::Program program;
    program.arguments = command;
    program.environment = std::move(variables);
    program.inherited_fds = {local_->key_fd()};
    program.cores = slot.cores;
    children_.push_back(tools::start(program));
  }
}

// The environment that one `horo run` per host would set: shared memory inside a host, TCP between hosts.
void World::start_horo_on_hosts(const Environment& environment, const std::vector<std::string>& command) {
  const std::string key_file = write_key(environment.folder() + "/" + name() + ".key");
  const auto place = std::find(path_words().begin(), path_words().end(), contestant_.path) - path_words().begin();
  for (int rank = 0; rank < ranks_; ++rank) {
    const HostList::Placement placement = environment.hosts().place(rank, ranks_);
    std::vector<std::string> variables = harness_variables(environment, name());
    variables.insert(variables.end(),
                     {"HORO_RANK=" + std::to_string(rank), "HORO_SIZE=" + std::to_string(ranks_),
                      "HORO_LOCAL_RANK=" + std::to_string(placement.local_rank),
                      "HORO_LOCAL_SIZE=" + std::to_string(placement.local_size), "HORO_TRANSPORT=auto",
                      "HORO_ADDR=" + environment.hosts().first_address() + ":" + std::to_string(kFirstPort + place),
                      "HORO_KEY_FILE=" + key_file});
    std::vector<std::string> there = environment.hosts().prefix(placement.host);
    there.insert(there.end(), command.begin(), command.end());
    start_program(there, environment_with(variables));
  }
}

}  // namespace horo::bench
