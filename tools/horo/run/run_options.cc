#include "tools/horo/run/run_options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "elastic/host_messages.h"
#include "horo/base/nearest.h"
#include "ring/os/socket.h"
#include "tools/horo/run/run_words.h"

namespace horo::tools {
namespace {

constexpr int kMaxLocalRanks = 1024;
constexpr int kMaxStaticHosts = 16'384;
constexpr int kRestarts = 5;           // the default of --restarts
constexpr double kNoticeSeconds = 30;  // the default of --grace
constexpr double kMaxNoticeSeconds = 86'400;
constexpr double kMaxElasticSeconds = std::chrono::duration<double>(kLongestLimit).count();
constexpr double kLeastEvictSeconds = 0.001;

constexpr const char* kKeyHelp =
    "ranks on several hosts need a key, the same on every host: make one with\n"
    "    head -c 32 /dev/urandom > key; chmod 600 key\n"
    "copy it to every host, and give --key-file key (or HORO_KEY_FILE) to each horo run";

[[noreturn]] void refuse(const std::string& text) {
  throw std::invalid_argument(text);
}

int number_of(std::string_view text, const std::string& option) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= 1 && number <= kMaxLocalRanks) {
    return number;
  }
  refuse(option + ": expected a number of ranks from 1 to " + std::to_string(kMaxLocalRanks) + ", not \"" +
         std::string(text) + "\"");
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

void set_one_host(const RunOptions& options, Launch& launch) {
  if (options.node_rank.value_or(0) != 0) {
    refuse("--node-rank " + std::to_string(*options.node_rank) + ": without --nnodes there is one host, number 0");
  }
  const std::vector<HostSlots> hosts = hosts_of(options);
  if (hosts.size() > 1 || (!hosts.empty() && !hosts.front().is_here)) refuse("--hosts: expected this host alone");
  if (hosts.empty() && !options.ranks) refuse("expected -n RANKS, as in: horo run -n 4 python train.py");
  launch.ranks_by_host = {hosts.empty() ? *options.ranks : hosts.front().slots};
  if (!options.addr.empty()) resolve(options.addr, "--addr");
}

void set_ranks_by_host(const RunOptions& options, int nodes, Launch& launch) {
  const std::string option = "--ranks-per-node " + options.ranks_per_node;
  if (options.ranks_per_node.empty()) {
    if (!options.ranks)
      refuse("expected -n RANKS, the number on each host; or --ranks-per-node 2,1 where hosts differ");
    launch.ranks_by_host.assign(static_cast<std::size_t>(nodes), *options.ranks);
    return;
  }
  launch.ranks_by_host.clear();
  for (const std::string& part : split(options.ranks_per_node)) launch.ranks_by_host.push_back(number_of(part, option));
  if (launch.ranks_by_host.size() != static_cast<std::size_t>(nodes)) {
    refuse(option + ": expected one number for each of --nnodes " + std::to_string(nodes));
  }
  if (options.ranks && *options.ranks != launch.ranks()) {
    refuse("-n " + std::to_string(*options.ranks) + ": " + option + " gives " + std::to_string(launch.ranks()) +
           " to --node-rank " + std::to_string(launch.host) + "; expected the same number, or no -n");
  }
}

// Debian's /etc/hosts maps the host's own name to a loopback address, which other hosts cannot reach.
void check_addr(const std::string& addr) {
  const std::string host = addr.substr(0, addr.rfind(':'));
  const auto addresses = resolve(addr, "--addr");
  if (host == "localhost" || host.starts_with("127.") || host == "[::1]") return;
  if (std::all_of(addresses.begin(), addresses.end(), is_loopback)) {
    refuse("--addr " + addr + ": on this host the name resolves to " + to_text(addresses.front()) +
           ", a loopback address, which no other host can reach: give the address of the interface instead (ip addr)");
  }
}

void set_hosts(const RunOptions& options, Launch& launch) {
  const int nodes = options.nodes.value_or(1);
  if (nodes < 1 || nodes > kMaxStaticHosts) refuse("--nnodes " + std::to_string(nodes) + ": expected 1 to 16384 hosts");
  const char* from_environment = std::getenv("HORO_KEY_FILE");
  launch.addr = options.addr;
  launch.key_file = options.key_file;
  if (nodes == 1) {
    set_one_host(options, launch);
    return;
  }
  if (!options.hosts.empty() || !options.host_file.empty()) refuse("--hosts and --nnodes: expected one of them");
  if (!options.node_rank)
    refuse("--nnodes: expected --node-rank too, 0 on the host of --addr, 1, 2, ... on the others");
  if (*options.node_rank < 0 || *options.node_rank >= nodes) {
    refuse("--node-rank " + std::to_string(*options.node_rank) + ": expected 0 to " + std::to_string(nodes - 1) +
           " with --nnodes " + std::to_string(nodes));
  }
  if (options.addr.empty()) refuse("--nnodes: expected --addr HOST:PORT too, where rank 0 listens on the first host");
  if (launch.key_file.empty() && from_environment != nullptr && !options.is_part) launch.key_file = from_environment;
  if (launch.key_file.empty() && !options.is_part) refuse(std::string("--nnodes: ") + kKeyHelp);
  launch.host = static_cast<std::size_t>(*options.node_rank);
  set_ranks_by_host(options, nodes, launch);
  check_addr(launch.addr);
}

void set_variables(const RunOptions& options, Launch& launch) {
  for (const std::string& variable : options.variables) {
    const std::size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    if (name.empty()) refuse("--env " + variable + ": expected NAME=VALUE, or NAME to pass on its value");
    if (is_set_by_run(name)) {
      refuse(std::string("--env ").append(variable).append(": horo run itself sets ").append(name));
    }
    const char* value = equals == std::string::npos ? std::getenv(name.c_str()) : variable.c_str() + equals + 1;
    if (value == nullptr) refuse("--env " + name + ": it is not set in this environment; expected NAME=VALUE");
    launch.variables.emplace_back(name, value);
  }
  if (options.replace_gloo) launch.variables.emplace_back("HORO_REPLACE_GLOO", "1");
  if (!options.log_level.empty()) launch.variables.emplace_back("HORO_LOG_LEVEL", options.log_level);
  if (!options.timeline.empty()) {
    launch.variables.emplace_back("HORO_TIMELINE", std::filesystem::absolute(options.timeline).string());
  }
  if (options.start_timeout_s == 0) return;
  const auto wait_ms = static_cast<long long>(std::ceil(options.start_timeout_s * 1000));
  launch.variables.emplace_back("HORO_START_TIMEOUT_MS", std::to_string(wait_ms));
}

// Without --rendezvous host 0 runs one, at the port after that of --addr.
void set_rendezvous(const RunOptions& options, Launch& launch) {
  if (launch.ranks_by_host.size() == 1) {
    if (options.rendezvous.empty()) return;
    refuse("--rendezvous: the job has one host, which needs none; expected --nnodes too");
  }
  launch.rendezvous = options.rendezvous;
  if (!launch.rendezvous.empty()) {
    resolve(launch.rendezvous, "--rendezvous");
    return;
  }
  const std::size_t colon = launch.addr.rfind(':');
  const int port = std::atoi(launch.addr.c_str() + colon + 1);
  if (port < 1 || port > 65'534)
    refuse("--addr " + launch.addr + ": the rendezvous needs the port after it; expected a port from 1 to 65534");
  launch.rendezvous = launch.addr.substr(0, colon + 1) + std::to_string(port + 1);
  launch.embeds_rendezvous = launch.host == 0;
}

double park_timeout_of_horovod(const Launch& launch) {
  const char* text = std::getenv("HOROVOD_ELASTIC_TIMEOUT");
  if (text == nullptr || *text == '\0') return launch.park_timeout_s;
  int seconds = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, seconds);
  if (error == std::errc() && stop == end && seconds >= 1 && seconds <= kMaxElasticSeconds) return seconds;
  refuse(std::string("HOROVOD_ELASTIC_TIMEOUT=") + text + ": expected a whole number of seconds from 1 to 1000000");
}

// What the agents and the rendezvous take: decode_job_spec().
void check_elastic_limits(const Launch& launch) {
  if (launch.ranks_by_host.size() > kMaxHosts) {
    refuse("--min-np: an elastic job has at most " + std::to_string(kMaxHosts) + " hosts, not " +
           std::to_string(launch.ranks_by_host.size()));
  }
  if (launch.size() > static_cast<int>(kMaxMembers)) {
    refuse("--min-np: an elastic job has at most " + std::to_string(kMaxMembers) + " ranks, not " +
           std::to_string(launch.size()));
  }
  if (!(launch.evict_after_s >= kLeastEvictSeconds && launch.evict_after_s <= kMaxElasticSeconds)) {
    refuse("--evict-after: expected 0.001 to 1000000 seconds");
  }
  if (!(launch.park_timeout_s >= 0 && launch.park_timeout_s <= kMaxElasticSeconds)) {
    refuse("--park-timeout: expected at most 1000000 seconds");
  }
}

// Ranks that are started later, on one host.
void set_joins(const RunOptions& options, Launch& launch) {
  const int most = options.max_ranks.value_or(launch.size());
  if (most < launch.size()) {
    refuse("--max-np " + std::to_string(most) + ": expected at least the number of ranks at the start, " +
           (launch.ranks_by_host.size() > 1 ? "" : "-n ") + std::to_string(launch.size()));
  }
  if (options.restarts.value_or(0) < 0)
    refuse("--restarts " + std::to_string(*options.restarts) + ": expected 0 or more");
  if (!(options.cool_down_s.value_or(0) >= 0 && options.cool_down_s.value_or(0) <= kMaxElasticSeconds)) {
    refuse("--cool-down: expected 0 to 1000000 seconds");
  }
  if (launch.ranks_by_host.size() > 1) {
    const char* const option = options.restarts.value_or(0) > 0 ? "--restarts"
                               : options.cool_down_s            ? "--cool-down"
                                                                : "";
    if (*option == '\0') return;
    refuse(std::string(option) + ": a job on several hosts starts no rank again in this version; it goes on without " +
           "those that fail");
  }
  if (most > kMaxLocalRanks) {
    refuse("--max-np " + std::to_string(most) + ": expected at most " + std::to_string(kMaxLocalRanks) +
           " ranks on one host");
  }
  launch.max_ranks = most;
  launch.restarts = options.restarts.value_or(kRestarts);
  launch.cool_down_s = options.cool_down_s.value_or(launch.cool_down_s);
}

double grace_of(const RunOptions& options, double usual) {
  const double grace_s = options.grace_s.value_or(usual);
  if (!(grace_s >= 0 && grace_s <= kMaxNoticeSeconds)) refuse("--grace: expected 0 to 86400 seconds");
  return grace_s;
}

// All ranks of a job are started again by the horo run that has started them, and knows that all have ended.
void set_restarts_from_checkpoint(const RunOptions& options, Launch& launch) {
  if (!options.restarts_from_checkpoint) return;
  const std::string option = "--restart-from-checkpoint " + std::to_string(*options.restarts_from_checkpoint);
  if (*options.restarts_from_checkpoint < 0) refuse(option + ": expected 0 or more");
  if (launch.ranks_by_host.size() > 1) {
    refuse(option + ": a job on several hosts is not started again in this version; start it again by its scheduler, " +
           "and its script goes on from its newest checkpoint");
  }
  launch.restarts_from_checkpoint = *options.restarts_from_checkpoint;
}

void set_elastic(const RunOptions& options, Launch& launch) {
  if (!options.min_ranks) {
    const bool is_alone = launch.ranks_by_host.size() == 1;
    const char* const option = options.max_ranks              ? "--max-np"
                               : options.restarts             ? "--restarts"
                               : options.cool_down_s          ? "--cool-down"
                               : options.evict_after_s        ? "--evict-after"
                               : options.park_timeout_s       ? "--park-timeout"
                               : options.grace_s && !is_alone ? "--grace"
                               : !options.rendezvous.empty()  ? "--rendezvous"
                                                              : nullptr;
    if (option != nullptr) refuse(std::string(option) + ": expected --min-np too, which makes the job elastic");
    launch.grace_s = grace_of(options, 0);
    return;
  }
  const std::string option = "--min-np " + std::to_string(*options.min_ranks);
  const std::string ranks = (launch.ranks_by_host.size() > 1 ? "" : "-n ") + std::to_string(launch.size());
  if (*options.min_ranks < 1 || *options.min_ranks > launch.size()) {
    refuse(option + ": expected 1 to the number of ranks at the start, " + ranks);
  }
  set_joins(options, launch);
  launch.min_ranks = *options.min_ranks;
  launch.evict_after_s = options.evict_after_s.value_or(launch.evict_after_s);
  launch.park_timeout_s = options.park_timeout_s ? *options.park_timeout_s : park_timeout_of_horovod(launch);
  launch.grace_s = grace_of(options, kNoticeSeconds);
  check_elastic_limits(launch);
  set_rendezvous(options, launch);
}

std::string folder_of(const std::string& cwd) {
  if (cwd.empty()) return "";
  struct stat status {};
  if (::stat(cwd.c_str(), &status) != 0) refuse("--cwd " + cwd + ": " + std::strerror(errno));
  if (!S_ISDIR(status.st_mode)) refuse("--cwd " + cwd + ": expected a folder");
  if (::access(cwd.c_str(), X_OK) != 0) refuse("--cwd " + cwd + ": " + std::strerror(errno));
  return std::filesystem::absolute(cwd).lexically_normal().string();
}

// Without that line a shell would run the script.
bool has_interpreter(const std::filesystem::path& script) {
  std::ifstream file(script);
  return file.get() == '#' && file.get() == '!';
}

// A script that is named as for torchrun, without Python in front of it.
void add_python(Launch& launch) {
  const std::string& script = launch.command.front();
  if (!script.ends_with(".py")) return;
  const std::filesystem::path path = std::filesystem::path(launch.cwd) / script;
  const bool is_program = script.find('/') != std::string::npos && ::access(path.c_str(), X_OK) == 0;
  if (is_program && has_interpreter(path)) return;
  if (::access(path.c_str(), R_OK) == 0) launch.command.insert(launch.command.begin(), python_of_ranks());
}

// A Python that would read its program from standard input: "python", "python3.11 -".
bool reads_program(const std::vector<std::string>& command) {
  std::string name = std::filesystem::path(command.front()).filename().string();
  if (!name.starts_with("python")) return false;
  const bool is_python = name.find_first_not_of("0123456789.", sizeof("python") - 1) == std::string::npos;
  return is_python && (command.size() == 1 || (command.size() == 2 && command.back() == "-"));
}

// The ranks do not get a terminal, so such a program would end at once, without a word and with 0.
void check_program(const RunOptions& options) {
  if (!reads_program(options.command) || ::isatty(STDIN_FILENO) != 1) return;
  refuse(options.command.front() + ": its program would come from standard input, and a terminal does not reach the " +
         "ranks; name a script, as in: horo run -n 4 python train.py");
}

CoreBinding binding_of(const std::string& word) {
  if (word == "auto") return CoreBinding::kAuto;
  if (word == "none") return CoreBinding::kNone;
  if (word == "core") return CoreBinding::kCore;
  refuse("--bind-to " + word + ": expected auto, none or core" + nearest_text(word, {"auto", "none", "core"}));
}

}  // namespace

bool is_set_by_run(std::string_view name) {
  constexpr std::array<std::string_view, 22> kOurs = {
      "HORO_RANK",          "HORO_SIZE",     "HORO_LOCAL_RANK",    "HORO_LOCAL_SIZE",    "HORO_ADDR",
      "HORO_KEY_FD",        "HORO_KEY_FILE", "HORO_GUARD_FD",      "HORO_MIN_NP",        "HORO_JOINS",
      "HOROVOD_RANK",       "HOROVOD_SIZE",  "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK",
      "HOROVOD_CROSS_SIZE", "RANK",          "WORLD_SIZE",         "LOCAL_RANK",         "LOCAL_WORLD_SIZE",
      "GROUP_RANK",         "NODE_RANK"};
  return std::find(kOurs.begin(), kOurs.end(), name) != kOurs.end();
}

std::vector<HostSlots> hosts_of(const RunOptions& options) {
  if (options.hosts.empty() && options.host_file.empty()) return {};
  if (!options.hosts.empty() && !options.host_file.empty()) refuse("--hosts and --hostfile: expected one of them");
  const bool is_file = options.hosts.empty();
  const std::string option = is_file ? "--hostfile " + options.host_file : "--hosts " + options.hosts;
  if (options.ranks && *options.ranks < 1)
    refuse("-n " + std::to_string(*options.ranks) + ": expected at least 1 rank");
  return place_ranks(is_file ? read_host_file(options.host_file, option) : parse_hosts(options.hosts, option),
                     options.ranks.value_or(0), option);
}

Launch launch_of(const RunOptions& options) {
  if (options.ranks && (*options.ranks < 1 || *options.ranks > kMaxLocalRanks)) {
    number_of(std::to_string(*options.ranks), "-n " + std::to_string(*options.ranks));
  }
  if (options.command.empty()) refuse("expected a program, as in: horo run -n 4 python train.py");
  check_program(options);
  Launch launch;
  launch.command = options.command;
  set_hosts(options, launch);
  set_variables(options, launch);
  set_elastic(options, launch);
  set_restarts_from_checkpoint(options, launch);
  launch.cwd = folder_of(options.cwd);
  add_python(launch);
  launch.output_dir = options.output_dir;
  launch.timeout_s = options.timeout_s;
  launch.binding = binding_of(options.bind_to);
  launch.is_part = options.is_part;
  launch.passes_input = !options.is_part;
  launch.verbose = options.verbose;
  launch.progress_s = options.progress_s;
  launch.summarizes = options.summary.value_or(::isatty(2) == 1 && !options.is_part);
  return launch;
}

}  // namespace horo::tools
