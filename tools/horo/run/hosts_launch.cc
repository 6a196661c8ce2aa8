#include "tools/horo/run/hosts_launch.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "ring/os/socket.h"
#include "tools/horo/run/job_input.h"
#include "tools/horo/run/local_world.h"

namespace horo::tools {
namespace {

constexpr int kPort = 29'400;  // of rank 0 on a host that is not this one
constexpr int kTries = 100;
constexpr std::uint16_t kLastPort = 65'533;

[[noreturn]] void refuse_hosts(const std::string& text) {
  throw std::invalid_argument(text);
}

std::string option_text(const RunOptions& options) {
  return options.host_file.empty() ? "--hosts " + options.hosts : "--hostfile " + options.host_file;
}

std::string resolvable(const std::string& name, int port) {
  const std::string bare = name.substr(name.find('@') + 1);
  return (bare.find(':') == std::string::npos ? bare : "[" + bare + "]") + ":" + std::to_string(port);
}

std::vector<Address> addresses_of(const HostSlots& host) {
  try {
    return resolve(resolvable(host.name, kPort), "--hosts");
  } catch (const std::invalid_argument& error) {
    refuse_hosts(std::string(error.what()) + "; or give --addr HOST:PORT, where rank 0 listens on host " + host.name);
  }
}

// This host's address on the way to the others.
Address own_address(const std::vector<HostSlots>& hosts) {
  std::optional<Address> own;
  for (const HostSlots& host : hosts) {
    if (host.is_here) continue;
    const Address towards = address_towards(addresses_of(host).front());
    if (own && to_text(*own) != to_text(towards)) {
      refuse_hosts("--hosts: this host reaches the others from several addresses (" + to_text(*own) + ", " +
                   to_text(towards) + "); expected --addr HOST:PORT, where rank 0 listens and all reach it");
    }
    own = towards;
  }
  return *own;
}

// Reserves a free port of this host. The next one, of a rendezvous, and the one after it, of torch, are free, too.
std::string free_address(const std::vector<HostSlots>& hosts, bool is_elastic, Descriptor& reserved) {
  const Address own = own_address(hosts);
  for (int i = 0; i < kTries; ++i) {
    reserved = reserve_address(with_port(own, 0));
    if (!reserved.is_open()) break;
    const std::string text = to_text(local_address(reserved.get()));
    const int port = std::stoi(text.substr(text.rfind(':') + 1));
    if (port > kLastPort) continue;
    const auto is_free = [&](int one) {
      return reserve_address(with_port(own, static_cast<std::uint16_t>(one))).is_open();
    };
    if (is_free(port + 2) && (!is_elastic || is_free(port + 1))) return text;
  }
  refuse_hosts("--hosts: rank 0 cannot listen at " + to_text(own) + "; expected --addr HOST:PORT");
}

std::string address_of_first(const std::vector<HostSlots>& hosts, bool is_elastic, Descriptor& reserved) {
  if (hosts.front().is_here) return free_address(hosts, is_elastic, reserved);
  const Address address = addresses_of(hosts.front()).front();
  if (is_loopback(address)) {
    refuse_hosts("--hosts: " + hosts.front().name + " is " + to_text(address) +
                 " here, which other hosts cannot reach; expected --addr HOST:PORT, where rank 0 listens");
  }
  return to_text(address);
}

template <typename Value>
void add_option(const char* option, const std::optional<Value>& value, std::vector<std::string>& words) {
  if (value) words.insert(words.end(), {option, std::to_string(*value)});
}

void add_option(const char* option, const std::string& value, std::vector<std::string>& words) {
  if (!value.empty()) words.insert(words.end(), {option, value});
}

std::vector<std::string> words_of(const RunOptions& options) {
  std::vector<std::string> words{"run", "--part"};
  add_option("-n", options.ranks, words);
  add_option("--nnodes", options.nodes, words);
  add_option("--node-rank", options.node_rank, words);
  add_option("--ranks-per-node", options.ranks_per_node, words);
  add_option("--addr", options.addr, words);
  add_option("--min-np", options.min_ranks, words);
  add_option("--max-np", options.max_ranks, words);
  add_option("--restarts", options.restarts, words);
  add_option("--cool-down", options.cool_down_s, words);
  add_option("--restart-from-checkpoint", options.restarts_from_checkpoint, words);
  add_option("--evict-after", options.evict_after_s, words);
  add_option("--park-timeout", options.park_timeout_s, words);
  add_option("--grace", options.grace_s, words);
  add_option("--bind-to", options.bind_to, words);
  if (options.timeout_s > 0) add_option("--timeout", std::optional(options.timeout_s), words);
  if (!options.output_dir.empty()) {
    add_option("--output-dir", std::filesystem::absolute(options.output_dir).string(), words);
  }
  if (options.progress_s > 0) add_option("--progress", std::optional(options.progress_s), words);
  if (options.verbose) words.emplace_back("--verbose");
  words.emplace_back("--");
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

// The options of one host's part.
RunOptions part_of(const RunOptions& options, const std::vector<HostSlots>& hosts, std::size_t host) {
  RunOptions part = options;
  part.hosts.clear();
  part.host_file.clear();
  part.is_part = true;
  if (host > 0) part.progress_s = 0;  // the first host has the steps of all
  part.ranks.reset();
  if (hosts.size() == 1) {
    part.ranks = hosts.front().slots;
    part.addr.clear();
    return part;
  }
  part.nodes = static_cast<int>(hosts.size());
  part.node_rank = static_cast<int>(host);
  for (const HostSlots& one : hosts) {
    part.ranks_per_node += (part.ranks_per_node.empty() ? "" : ",") + std::to_string(one.slots);
  }
  return part;
}

// The variables of this process that the ranks of other hosts get without being asked for.
bool is_exported(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"PATH", "LD_LIBRARY_PATH", "LANG", "VIRTUAL_ENV"};
  constexpr std::array<std::string_view, 5> kPrefixes = {"HORO_", "HOROVOD_", "PYTHON", "OMP_", "LC_"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](auto prefix) { return name.starts_with(prefix); });
}

// What describes a rank or a job, this one or another, stays here.
bool is_of_a_rank(const std::string& name) {
  return is_foreign_variable(name) || is_set_by_run(name) || name == "HORO_INCARNATION";
}

std::vector<std::string> exported(const Launch& launch) {
  std::map<std::string, std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text(*variable);
    const std::string name = text.substr(0, text.find('='));
    if (name.size() < text.size() && is_exported(name) && !is_of_a_rank(name)) {
      variables[name] = text.substr(name.size() + 1);
    }
  }
  for (const auto& [name, value] : launch.variables) variables[name] = value;
  std::vector<std::string> texts;
  for (const auto& [name, value] : variables) texts.push_back(std::string(name).append("=").append(value));
  return texts;
}

std::string own_program() {
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  if (path.find('\'') == std::string::npos) return path;
  refuse_hosts("--hosts: the path of this program has a quote, which no other host is given: " + path);
}

// BatchMode: ssh asks for no password and for no unknown host key, but fails with the reason.
std::vector<std::string> command_of(const RunOptions& options, const HostSlots& host, double start_timeout_s) {
  if (host.is_here) return {"/proc/self/exe", "host"};
  const int seconds = std::max(1, static_cast<int>(start_timeout_s));
  std::vector<std::string> words{"ssh", "-T",
                                 "-a",  "-x",
                                 "-o",  "BatchMode=yes",
                                 "-o",  "ConnectTimeout=" + std::to_string(seconds),
                                 "-o",  "ServerAliveInterval=10"};
  add_option("-p", options.ssh_port, words);
  add_option("-i", options.ssh_identity, words);
  words.insert(words.end(), {"--", host.name, "exec '" + own_program() + "' host"});
  return words;
}

void check_hosts_options(const RunOptions& options) {
  if (!options.rendezvous.empty()) {
    refuse_hosts(
        option_text(options) + " and --rendezvous: expected no --rendezvous, since host 0 runs one; or --nnodes " +
        "and --key-file on each host in place of the list: a horo rendezvous has the key of that file, and here " +
        "horo run draws the key");
  }
  const char* const other = options.nodes                     ? "--nnodes"
                            : options.node_rank               ? "--node-rank"
                            : !options.ranks_per_node.empty() ? "--ranks-per-node"
                            : !options.key_file.empty()       ? "--key-file"
                                                              : nullptr;
  if (other != nullptr) {
    refuse_hosts(option_text(options) + " and " + other + ": expected one of them; the list has the hosts and their " +
                 "ranks, and horo run draws the key");
  }
}

}  // namespace

std::optional<HostsLaunch> hosts_launch_of(const RunOptions& options) {
  const std::vector<HostSlots> hosts = hosts_of(options);
  if (hosts.empty() || (hosts.size() == 1 && hosts.front().is_here)) return std::nullopt;
  check_hosts_options(options);
  if (has_input(STDIN_FILENO)) {
    refuse_hosts(
        "--hosts: standard input does not reach ranks on several hosts: name a file instead; < /dev/null if it is " +
        std::string("not for them"));
  }
  HostsLaunch launch;
  RunOptions all = options;
  if (all.addr.empty() && hosts.size() > 1) {
    all.addr = address_of_first(hosts, all.min_ranks.has_value(), launch.port);
  }
  const Launch first = launch_of(part_of(all, hosts, 0));
  if (options.start_timeout_s > 0) launch.start_timeout_s = options.start_timeout_s;
  launch.folder = first.cwd.empty() ? std::filesystem::current_path().string() : first.cwd;
  launch.variables = exported(first);
  launch.is_elastic = first.min_ranks > 0;
  launch.verbose = options.verbose;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    launch.horo_run.push_back(words_of(part_of(all, hosts, host)));
    launch.commands.push_back(command_of(options, hosts[host], launch.start_timeout_s));
  }
  launch.hosts = hosts;
  return launch;
}

void print_hosts_plan(const HostsLaunch& launch) {
  const auto print = [](const char* what, const std::vector<std::string>& words) {
    std::cout << "  " << what;
    for (const std::string& word : words) std::cout << " " << quoted_for_shell(word);
    std::cout << "\n";
  };
  for (std::size_t host = 0; host < launch.hosts.size(); ++host) {
    std::cout << "host " << launch.hosts[host].name << ", ranks: " << launch.hosts[host].slots << "\n";
    print("by", launch.commands[host]);
    print("in ", {launch.folder});
    for (const std::string& variable : launch.variables) {
      const std::size_t value = variable.find('=') + 1;
      std::cout << "    " << variable.substr(0, value) << quoted_for_shell(variable.substr(value)) << "\n";
    }
    print("horo", launch.horo_run[host]);
  }
}

}  // namespace horo::tools
