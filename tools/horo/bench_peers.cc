// How each contestant is started.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "bench/peers/contest.h"
#include "tools/horo/bench_worlds.h"
#include "tools/horo/cores.h"

namespace horo {
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

}  // namespace

const std::vector<std::string>& peer_words() {
  static const std::vector<std::string> words{"openmpi", "openmpi-tcp", "mpich", "gloo"};
  return words;
}

const std::vector<std::string>& path_words() {
  static const std::vector<std::string> words{"shm-bucket", "shm-user", "tcp", "abi", "abi-1000", "abi-1000-bucket"};
  return words;
}

Side peer_side(const std::string& word) {
  return word == "openmpi-tcp" ? Side{"openmpi", "tcp"} : Side{word, "default"};
}

void World::start_peer(const Venue& venue) {
  std::vector<std::string> variables = contest_variables(venue, name());
  const std::string ranks = std::to_string(ranks_);
  if (side_.library == "gloo") {
    const std::string driver = need_file(name(), venue.peers() + "/gloo.py");
    for (int rank = 0; rank < ranks_; ++rank) {
      std::vector<std::string> of_rank = variables;
      of_rank.push_back("RANK=" + std::to_string(rank));
      of_rank.push_back("WORLD_SIZE=" + ranks);
      start_program({python_for(venue.peers()), driver}, environment_with(of_rank));
    }
    return;
  }
  std::vector<std::string> command;
  if (side_.library == "openmpi") {
    command = {need_program(name(), {"mpirun.openmpi"}), "--allow-run-as-root"};
    if (ranks_ > usable_cores()) command.emplace_back("--oversubscribe");
    if (side_.path == "tcp") command.insert(command.end(), {"--mca", "btl", "tcp,self"});
  } else {
    command = {need_program(name(), {"mpiexec.hydra", "mpirun.mpich", "mpiexec.mpich"})};
  }
  command.insert(command.end(), {"-n", ranks, need_file(name(), venue.peers() + "/mpi_" + side_.library)});
  start_program(command, environment_with(variables));
}

void World::start_ours(const Venue& venue) {
  launch_ = std::make_unique<Launch>();
  launch_->ranks_by_host = {ranks_};
  launch_->binding = Binding::kAuto;  // as horo run does it
  launch_->variables = {{"HORO_TRANSPORT", side_.path == "tcp" ? "tcp" : "shm"}};
  local_ = std::make_unique<LocalWorld>(*launch_);
  std::vector<std::string> command;
  if (side_.path.starts_with("abi")) {
    command = {need_file(name(), venue.peers() + "/contest_abi"), side_.path == "abi" ? "1" : "1000"};
    if (side_.path.ends_with("-bucket")) command.emplace_back("bucket");
  } else {
    command = {std::filesystem::read_symlink("/proc/self/exe").string(), "bench", "contestant", side_.path};
  }
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

}  // namespace horo
