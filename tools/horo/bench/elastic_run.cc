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

namespace horo::tools {
namespace {

Program program_of(const ElasticBench& bench, ElasticKind kind, int steps, int resident) {
  const std::string horo = std::filesystem::read_symlink("/proc/self/exe").string();
  Program program;
  program.arguments = {horo, "run", "-n", std::to_string(bench.ranks)};
  if (kind == ElasticKind::kElastic) program.arguments.insert(program.arguments.end(), {"--min-np", "1", "--grace", "0", "-v"});
  for (const std::string& word :
       {horo, std::string("bench"), std::string("elastic"), "--tensors=" + std::to_string(bench.tensors),
        "--bytes=" + std::to_string(bench.bytes), "--compute-ms=" + std::to_string(bench.compute_ms),
        "--steps=" + std::to_string(steps)}) {
    program.arguments.push_back(word);
  }
  if (!bench.transport.empty()) program.arguments.push_back("--transport=" + bench.transport);
  if (kind == ElasticKind::kBare) program.arguments.emplace_back("--no-barrier");
  if (bench.in_buckets) program.arguments.emplace_back("--in-buckets");
  if (resident >= 0) {
    program.arguments.push_back("--resident=" + std::to_string(bench.resident_bytes));
    program.arguments.push_back("--resident-rank=" + std::to_string(resident));
  }
  for (char** variable = environ; *variable != nullptr; ++variable) program.environment.emplace_back(*variable);
  return program;
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

ElasticRun::ElasticRun(const ElasticBench& bench, ElasticKind kind, int steps, int resident)
    : child_(start(program_of(bench, kind, steps, resident))), ranks_(static_cast<std::size_t>(bench.ranks)) {}

ElasticRun::~ElasticRun() {
  if (is_waited_for_) return;
  ::kill(child_.pid, SIGTERM);
  const TimePoint end = Clock::now() + std::chrono::seconds(10);
  while (Clock::now() < end && read(end)) {
  }
  ::kill(child_.pid, SIGKILL);  // its ranks end with it
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
  std::array<pollfd, 2> wanted = {pollfd{child_.output.get(), POLLIN, 0}, pollfd{child_.errors.get(), POLLIN, 0}};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  ::poll(wanted.data(), wanted.size(), static_cast<int>(std::max<long long>(left.count(), 0)));
  const bool has_output = read_stream(child_.output, output_rest_, true);
  const bool has_errors = read_stream(child_.errors, errors_rest_, false);
  return has_output || has_errors;
}

// False at the end of the stream.
bool ElasticRun::read_stream(Descriptor& stream, std::string& rest, bool is_output) {
  std::array<char, 65536> bytes;
  while (stream.is_open()) {
    const ssize_t got = ::read(stream.get(), bytes.data(), bytes.size());
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) break;
    rest.append(bytes.data(), static_cast<std::size_t>(got));
    take_lines(rest, [&](const std::string& line) { is_output ? take_print(line) : take_story(line); });
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
// 12.345678 s".
void ElasticRun::take_story(const std::string& line) {
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
  if (at == std::string::npos || line.find(" runs on ") == std::string::npos) return;
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

int ElasticRun::wait() {
  int status = 0;
  while (::waitpid(child_.pid, &status, 0) < 0 && errno == EINTR) {
  }
  is_waited_for_ = true;
  return status;
}

void ElasticRun::fail() const {
  throw std::runtime_error("bench elastic: a job failed or did not go on. horo run says:\n" + story_);
}

}  // namespace horo::tools
