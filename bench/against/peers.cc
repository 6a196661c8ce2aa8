// How each contestant is started.
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
#include "bench/peers/contest.h"
#include "horo/base/auth.h"
#include "tools/horo/machine/cores.h"

namespace horo::tools {
namespace {

// The whole path, or empty.
std::string find_program(const std::string& name) {
  std::istringstream folders(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = folder + "/" + name;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

[[noreturn]] void refuse_peer(const std::string& name, const std::string& what) {
  throw std::invalid_argument("bench --against " + name + ": " + what +
                              ". tools/setup peers installs what comparisons need; build horo again after it");
}

std::string need_file(const std::string& name, const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0) refuse_peer(name, "there is no " + path + " (--peers names the folder)");
  return path;
}

std::string need_program(const std::string& name, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (const std::string path = find_program(word); !path.empty()) return path;
  }
  refuse_peer(name, "there is no " + words.front() + " in PATH");
}

[[noreturn]] void refuse_hosts(const std::string& name) {
  throw std::invalid_argument("--hosts: not with " + name + ", on one host alone");
}

// $HORO_MPI_LIBRARY, or what the tree of the drivers has.
std::string mpi_plugin(const std::string& name, const std::string& peers) {
  if (const char* given = std::getenv("HORO_MPI_LIBRARY"); given != nullptr && *given != '\0') return given;
  return need_file(name, (std::filesystem::path(peers) / "../../bindings/c/libhoro_mpi.so").lexically_normal());
}

// $PYTHON, or that of the tree in which the drivers are, or the system's.
std::string python_for(const std::string& peers) {
  if (const char* given = std::getenv("PYTHON"); given != nullptr && *given != '\0') return given;
  for (std::filesystem::path folder = peers; folder.has_relative_path(); folder = folder.parent_path()) {
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

std::vector<std::string> contest_variables(const Venue& venue, const std::string& name) {
  return {std::string(CONTEST_FOLDER) + "=" + venue.folder(), std::string(CONTEST_NAME) + "=" + name};
}

constexpr std::ptrdiff_t kFirstPort = 29500;  // of horo's own worlds, which are on hosts where nothing else runs

std::string write_key(const std::string& path) {
  const JobKey key = make_job_key();
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
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
  static const std::vector<std::string> words{
      "shm-bucket", "shm-user", "tcp", "mpi", "mpi-fast", "abi", "abi-1000", "abi-1000-bucket"};
  return words;
}

Side peer_side(const std::string& word) {
  const std::size_t dash = word.find("-tcp");
  return dash == std::string::npos ? Side{word, "default"} : Side{word.substr(0, dash), "tcp"};
}

void World::start_gloo(const Venue& venue) {
  const std::string driver = need_file(name(), venue.peers() + "/gloo.py");
  for (int rank = 0; rank < ranks_; ++rank) {
    std::vector<std::string> variables = contest_variables(venue, name());
    variables.push_back("RANK=" + std::to_string(rank));
    variables.push_back("WORLD_SIZE=" + std::to_string(ranks_));
    if (venue.hosts().are_namespaces()) variables.push_back("GLOO_SOCKET_IFNAME=" + venue.hosts().interface());
    std::vector<std::string> command = venue.hosts().prefix(venue.hosts().seat(rank, ranks_).host);
    command.insert(command.end(), {python_for(venue.peers()), driver});
    start_program(command, environment_with(variables));
  }
}

// Open MPI's mpirun, as far as the program.
std::vector<std::string> World::openmpi_command(const Venue& venue) const {
  const ContestHosts& hosts = venue.hosts();
  std::vector<std::string> command = hosts.prefix(0);
  command.insert(command.end(), {need_program(name(), {"mpirun.openmpi"}), "--allow-run-as-root"});
  if (ranks_ > usable_cores()) command.emplace_back("--oversubscribe");
  if (hosts.are_namespaces()) {
    const std::string shell = venue.folder() + "/remote_shell";
    std::ofstream(shell) << hosts.remote_shell();
    for (const char* part : {"btl_tcp_if_include", "oob_tcp_if_include"}) {
      command.insert(command.end(), {"--mca", part, hosts.interface()});
    }
    command.insert(command.end(),
                   {"--mca", "plm_rsh_agent", "sh " + shell, "--bind-to", "none", "--host", hosts.slots(ranks_)});
  }
  // Between hosts; what each of them does inside is its own affair.
  const bool has_neighbours = hosts.are_namespaces() && ranks_ > static_cast<int>(hosts.size());
  if (side_.path == "tcp") {
    command.insert(command.end(), {"--mca", "btl", has_neighbours ? "tcp,vader,self" : "tcp,self"});
  }
  command.insert(command.end(), {"-n", std::to_string(ranks_)});
  return command;
}

void World::start_mpi(const Venue& venue) {
  std::vector<std::string> command, variables = contest_variables(venue, name());
  if (side_.library == "openmpi") {
    command = openmpi_command(venue);
  } else {
    if (venue.hosts().are_namespaces()) refuse_hosts(name());
    command = {need_program(name(), {"mpiexec.hydra", "mpirun.mpich", "mpiexec.mpich"}), "-n", std::to_string(ranks_)};
    if (side_.path == "tcp") variables.emplace_back("UCX_TLS=tcp,self");
  }
  command.push_back(need_file(name(), venue.peers() + "/mpi_" + side_.library));
  start_program(command, environment_with(variables));
}

// The same ranks under the same mpirun as Open MPI's own.
void World::start_ours_by_mpi(const Venue& venue) {
  if (venue.hosts().are_namespaces()) refuse_hosts(name());
  std::vector<std::string> variables = contest_variables(venue, name());
  variables.emplace_back("HORO_BACKEND=mpi");
  variables.push_back("HORO_MPI_LIBRARY=" + mpi_plugin(name(), venue.peers()));
  std::vector<std::string> command = openmpi_command(venue);
  command.insert(command.end(), {need_file(name(), venue.peers() + "/contest_group"), side_.path});
  start_program(command, environment_with(variables));
}

void World::start_ours(const Venue& venue) {
  if (side_.path.starts_with("mpi")) return start_ours_by_mpi(venue);
  std::vector<std::string> command;
  if (side_.path.starts_with("abi")) {
    command = {need_file(name(), venue.peers() + "/contest_abi"), side_.path == "abi" ? "1" : "1000"};
    if (side_.path.ends_with("-bucket")) command.emplace_back("bucket");
  } else {
    command = {std::filesystem::read_symlink("/proc/self/exe").string(), "bench", "contestant", side_.path};
  }
  if (venue.hosts().are_namespaces()) return start_ours_on_hosts(venue, command);
  launch_ = std::make_unique<Launch>();
  launch_->ranks_by_host = {ranks_};
  launch_->binding = Binding::kAuto;  // as horo run does it
  launch_->variables = {{"HORO_TRANSPORT", side_.path == "tcp" ? "tcp" : "shm"}};
  local_ = std::make_unique<LocalWorld>(*launch_);
  for (int rank = 0; rank < ranks_; ++rank) {
    std::vector<std::string> variables = local_->environment(rank);
    for (const std::string& variable : contest_variables(venue, name())) variables.push_back(variable);
    Program program;
    program.arguments = command;
    program.environment = std::move(variables);
    program.inherited_fd = local_->key_fd();
    program.cores = local_->cores(rank);
    children_.push_back(start(program));
  }
}

// As a user's horo run on every host would have it, memory inside a host and TCP between hosts.
void World::start_ours_on_hosts(const Venue& venue, const std::vector<std::string>& command) {
  const std::string key_file = write_key(venue.folder() + "/" + name() + ".key");
  const auto place = std::find(path_words().begin(), path_words().end(), side_.path) - path_words().begin();
  for (int rank = 0; rank < ranks_; ++rank) {
    const ContestHosts::Seat seat = venue.hosts().seat(rank, ranks_);
    std::vector<std::string> variables = contest_variables(venue, name());
    variables.insert(
        variables.end(),
        {"HORO_RANK=" + std::to_string(rank), "HORO_SIZE=" + std::to_string(ranks_),
         "HORO_LOCAL_RANK=" + std::to_string(seat.local_rank), "HORO_LOCAL_SIZE=" + std::to_string(seat.local_size),
         "HORO_TRANSPORT=auto", "HORO_ADDR=" + venue.hosts().first_address() + ":" + std::to_string(kFirstPort + place),
         "HORO_KEY_FILE=" + key_file});
    std::vector<std::string> there = venue.hosts().prefix(seat.host);
    there.insert(there.end(), command.begin(), command.end());
    start_program(there, environment_with(variables));
  }
}

}  // namespace horo::tools
