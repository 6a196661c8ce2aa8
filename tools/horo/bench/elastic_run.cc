#include "tools/horo/bench/elastic_run.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "horo/base/auth.h"
#include "tools/horo/machine/descriptor.h"

namespace horo::tools {
namespace {

constexpr int kFirstPort = 20'000, kPorts = 10'000;  // below the kernel's range of ephemeral ports
constexpr int kPortsOfJob = 2;                       // the ranks' and that of the rendezvous

// An earlier job's port may still be in use.
std::string port_of_next_job() {
  static int jobs = 0;
  return std::to_string(kFirstPort + kPortsOfJob * jobs++ % kPorts);
}

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

// The program of the ranks. The last words are the same on all hosts.
std::vector<std::string> words_of_rank(const ElasticBench& bench, ElasticKind kind, int steps, int resident) {
  std::vector<std::string> words = {own_path(),
                                    "bench",
                                    "elastic",
                                    "--tensors=" + std::to_string(bench.tensors),
                                    "--bytes=" + std::to_string(bench.bytes),
                                    "--compute-ms=" + std::to_string(bench.compute_ms),
                                    "--steps=" + std::to_string(steps)};
  if (!bench.transport.empty()) words.push_back("--transport=" + bench.transport);
  if (kind == ElasticKind::kBare) words.emplace_back("--no-barrier");
  if (bench.in_buckets) words.emplace_back("--in-buckets");
  if (resident >= 0) {
    words.push_back("--resident=" + std::to_string(bench.resident_bytes));
    words.push_back("--resident-rank=" + std::to_string(resident));
  }
  return words;
}

// Takes the complete lines out of `rest`.
template <class Take>
void take_lines(std::string& rest, const Take& take) {
  std::size_t begin = 0;
  for (std::size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n', begin)) {
    take(rest.substr(begin, end - begin));
    begin = end + 1;
  }
  rest.erase(0, begin);
}

}  // namespace

KeyFile::KeyFile() : path_((std::filesystem::temp_directory_path() / "horo-bench-key-XXXXXX").string()) {
  const Descriptor file(::mkstemp(path_.data()));
  JobKey key = make_job_key();
  if (!file.is_open() || ::write(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size()))
    throw std::system_error(errno, std::generic_category(), path_);
}

KeyFile::~KeyFile() {
  ::unlink(path_.c_str());
}

ElasticRun::ElasticRun(const ElasticBench& bench, ElasticKind kind, int steps, int resident)
    : key_(bench.hosts.empty() ? nullptr : std::make_unique<KeyFile>()),
      rank_words_(words_of_rank(bench, kind, steps, resident)),
      ranks_(static_cast<std::size_t>(bench.ranks)) {
  const std::string port = port_of_next_job();
  for (std::size_t host = 0; host < std::max<std::size_t>(bench.hosts.size(), 1); ++host) {
    runs_.push_back({start(program_of(bench, kind, host, port)), false, "", ""});
  }
}

Program ElasticRun::program_of(const ElasticBench& bench, ElasticKind kind, std::size_t host,
                               const std::string& port) const {
  const std::size_t hosts = std::max<std::size_t>(bench.hosts.size(), 1);
  Program program;
  std::vector<std::string>& words = program.arguments;
  if (key_) words = {"ip", "netns", "exec", bench.hosts[host].name};
  words.insert(words.end(), {own_path(), "run", "-n", std::to_string(ranks_.size() / hosts)});
  if (key_) {
    words.insert(words.end(), {"--nnodes", std::to_string(hosts), "--node-rank", std::to_string(host), "--addr",
                               bench.hosts.front().address + ":" + port, "--key-file", key_->path()});
  }
  if (kind == ElasticKind::kElastic) words.insert(words.end(), {"--min-np", "1", "--grace", "0", "-v"});
  words.insert(words.end(), rank_words_.begin(), rank_words_.end());
  for (char** variable = environ; *variable != nullptr; ++variable) program.environment.emplace_back(*variable);
  return program;
}

ElasticRun::~ElasticRun() {
  const auto signal_all = [this](int signal) {
    for (const HostRun& run : runs_) {
      if (!run.is_waited_for) ::kill(run.child.pid, signal);
    }
  };
  signal_all(SIGTERM);
  const TimePoint end = Clock::now() + std::chrono::seconds(10);
  while (Clock::now() < end && read(end)) {
  }
  signal_all(SIGKILL);  // their ranks end with them
  wait();
}

std::vector<int> ElasticRun::alive() const {
  std::vector<int> alive;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].is_alive) alive.push_back(static_cast<int>(rank));
  }
  return alive;
}

bool ElasticRun::read(TimePoint until) {
  std::vector<pollfd> wanted;
  for (const HostRun& run : runs_) {
    for (const Descriptor* stream : {&run.child.output, &run.child.errors})
      wanted.push_back({stream->get(), POLLIN, 0});
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  ::poll(wanted.data(), wanted.size(), static_cast<int>(std::max<long long>(left.count(), 0)));
  bool is_one_open = false;
  for (HostRun& run : runs_) {
    for (const bool is_output : {true, false}) is_one_open = read_stream(run, is_output) || is_one_open;
  }
  return is_one_open;
}

// False at the end of the stream.
bool ElasticRun::read_stream(HostRun& run, bool is_output) {
  Descriptor& stream = is_output ? run.child.output : run.child.errors;
  std::string& rest = is_output ? run.output_rest : run.errors_rest;
  const bool is_first_host = &run == &runs_.front();
  std::array<char, 65536> bytes;
  while (stream.is_open()) {
    const ssize_t got = ::read(stream.get(), bytes.data(), bytes.size());
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) break;
    rest.append(bytes.data(), static_cast<std::size_t>(got));
    take_lines(rest, [&](const std::string& line) { is_output ? take_print(line) : take_story(line, is_first_host); });
  }
  stream.close();
  return false;
}

// "[2] pid 2 4711", "[2] round 2 TIME MEMBERS USED" or "[2] change 2 FROZEN_FROM FROZEN VIEW CONNECTED INSTALLED",
// times in ns.
void ElasticRun::take_print(const std::string& line) {
  std::istringstream words(line);
  std::string prefix, what;
  std::size_t rank = 0;
  long long number = 0;
  if (!(words >> prefix >> what >> rank >> number) || rank >= ranks_.size()) return;
  if (what == "pid") ranks_[rank].pid = static_cast<pid_t>(number);
  if (what == "change") {
    Change& change = ranks_[rank].change;
    change.frozen_from = TimePoint(std::chrono::nanoseconds(number));
    for (TimePoint* moment : {&change.frozen, &change.view, &change.connected, &change.installed}) {
      words >> number;
      *moment = TimePoint(std::chrono::nanoseconds(number));
    }
  }
  std::uint64_t members = 0;
  long long used = 0;
  if (what == "round" && words >> members >> used) {
    ranks_[rank].deliveries.push_back(
        {TimePoint(std::chrono::nanoseconds(number)), members, std::chrono::nanoseconds(used)});
  }
}

// "horo run: epoch 1 runs on all 3 members after 15 ms", or "after 1.2 s"; "horo run: rank 2: process 4711 is ending at
// 12.345678 s". All hosts tell the same of epochs.
void ElasticRun::take_story(const std::string& line, bool is_first_host) {
  story_ += line + "\n";
  std::size_t rank = 0;
  double ended_s = 0;
  const bool is_end = std::sscanf(line.c_str(), "horo run: rank %zu: process %*d ended at %lf s", &rank, &ended_s) == 2;
  const bool is_ending =
      std::sscanf(line.c_str(), "horo run: rank %zu: process %*d is ending at %lf s", &rank, &ended_s) == 2;
  if ((is_end || is_ending) && rank < ranks_.size() && ranks_[rank].ended == TimePoint()) {
    const auto since_boot = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(ended_s));
    ranks_[rank].ended = TimePoint(since_boot);
  }
  const std::size_t at = line.rfind(" after ");
  if (!is_first_host || at == std::string::npos || line.find(" runs on ") == std::string::npos) return;
  std::istringstream words(line.substr(at + 7));
  double number = 0;
  std::string unit;
  if (words >> number >> unit) change_ms_.push_back(unit == "s" ? 1000 * number : number);
}

TimePoint ElasticRun::kill(int rank) {
  RankPrints& victim = ranks_[static_cast<std::size_t>(rank)];
  const TimePoint now = Clock::now();
  ::kill(victim.pid, SIGKILL);
  victim.is_alive = false;
  return now;
}

void ElasticRun::read_for(TimePoint until) {
  while (Clock::now() < until) {
    if (!read(until)) fail();
  }
}

void ElasticRun::read_to_end() {
  const TimePoint end = Clock::now() + std::chrono::minutes(10);
  while (read(end)) {
    if (Clock::now() >= end) fail();
  }
  if (wait() != 0) fail();
}

// The status of the first horo run that has failed, or 0.
int ElasticRun::wait() {
  int first = 0;
  for (HostRun& run : runs_) {
    int status = 0;
    if (std::exchange(run.is_waited_for, true)) continue;
    while (::waitpid(run.child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (first == 0) first = status;
  }
  return first;
}

void ElasticRun::fail() const {
  throw std::runtime_error("bench elastic: a job failed or did not go on. horo run says:\n" + story_);
}

}  // namespace horo::tools
