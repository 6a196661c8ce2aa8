#include "tools/horo/bench/iperf.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "horo/base/time.h"

namespace horo::tools {
namespace {

constexpr std::chrono::seconds kIperfTime{60};

std::vector<std::string> own_variables() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}

Child start_iperf(const std::vector<std::string>& arguments) {
  Program program;
  program.arguments = {"iperf3"};
  program.arguments.insert(program.arguments.end(), arguments.begin(), arguments.end());
  program.environment = own_variables();
  return start(program);
}

// Reads until `is_enough` returns true or the stream ends.
template <class IsEnough>
std::string read_until(int fd, const IsEnough& is_enough) {
  const TimePoint end = Clock::now() + kIperfTime;
  std::string text;
  char bytes[4096];
  while (!is_enough(text)) {
    pollfd wanted{fd, POLLIN, 0};
    if (Clock::now() > end) throw std::runtime_error("iperf3 does not end; its output: " + text);
    ::poll(&wanted, 1, 100);
    const ssize_t got = ::read(fd, bytes, sizeof(bytes));
    if (got == 0) break;
    if (got > 0) text.append(bytes, static_cast<std::size_t>(got));
  }
  return text;
}

void end_iperf(const Child& child) {
  signal_group(child.pid, SIGKILL);
  while (::waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

Throughput throughput_in(const std::string& json, Direction direction) {
  const nlohmann::json report = nlohmann::json::parse(json, nullptr, false);
  if (report.is_discarded()) throw std::runtime_error("the output of iperf3 is not JSON: " + json);
  if (report.contains("error")) throw std::runtime_error("iperf3: " + report["error"].get<std::string>());
  const auto received = [&](const char* name) {
    return report.at("end").at(name).at("bits_per_second").get<double>() / 1e9;
  };
  try {
    const double first = received("sum_received");
    if (direction == Direction::kToClient) return {.to_client = first};
    if (direction == Direction::kToServer) return {.to_server = first};
    return {.to_client = received("sum_received_bidir_reverse"), .to_server = first};
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error("iperf3's report is not as expected: " + std::string(error.what()));
  }
}

bool has_iperf() {
  std::istringstream folders(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/iperf3").c_str(), X_OK) == 0) return true;
  }
  return false;
}

IperfServer::IperfServer(const std::string& host, int port)
    : child_(start_iperf({"--server", "--bind", host, "--port", std::to_string(port), "--forceflush"})) {
  const auto listens = [](const std::string& text) { return text.find("listening") != std::string::npos; };
  const std::string text = read_until(child_.output.get(), listens);
  if (listens(text)) return;
  end_iperf(child_);
  throw std::runtime_error("iperf3 does not listen at " + host + ":" + std::to_string(port) + "; its output: " + text);
}

IperfServer::~IperfServer() {
  end_iperf(child_);
}

Throughput run_iperf_client(const std::string& host, int port, Direction direction) {
  std::vector<std::string> arguments = {"--client", host, "--port", std::to_string(port), "--time", "1",
                                        "--omit",   "1",  "--json"};
  if (direction == Direction::kToClient) arguments.emplace_back("--reverse");
  if (direction == Direction::kBoth) arguments.emplace_back("--bidir");
  const Child child = start_iperf(arguments);
  try {
    const std::string text = read_until(child.output.get(), [](const std::string&) { return false; });
    end_iperf(child);
    return throughput_in(text, direction);
  } catch (...) {
    end_iperf(child);
    throw;
  }
}

}  // namespace horo::tools
