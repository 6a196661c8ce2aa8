// The settings that a job would start with, and a test job: two ranks as threads, over loopback, with a known sum.
#include <netinet/in.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "horo/base/horovod_variables.h"
#include "horo/base/settings.h"
#include "horo/horo.h"
#include "ring/os/socket.h"
#include "tools/horo/doctor/doctor.h"

namespace horo::tools {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 2;
constexpr std::int64_t kElements = 100'000;
constexpr milliseconds kPatience{10'000};

// Reserves a port: the socket is bound and does not listen.
Fd reserve_loopback_port() {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (!fd.is_open() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    throw std::system_error(errno, std::generic_category(), "no port at 127.0.0.1 can be had");
  }
  return fd;
}

// Runs rank `rank`. Returns the error, or "".
std::string reduce_as(int rank, Config config) {
  try {
    config.rank = config.local_rank = rank;
    Session session(config);
    std::vector<float> values(kElements);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000 * (rank + 1));
    TensorSpec spec;
    spec.name = "doctor";
    spec.shape = {kElements};
    session.run(spec, values.data(), values.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] != static_cast<float>(i % 1000 * 3)) {
        return "element " + std::to_string(i) + " is " + std::to_string(values[i]) + ", expected " +
               std::to_string(i % 1000 * 3);
      }
    }
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string reduce_on_two_ranks() {
  const Fd port = reserve_loopback_port();
  Config config;
  config.size = config.local_size = kRanks;
  config.addr = to_text(local_address(port.get()));
  config.host_id = "doctor";
  config.job = "horo doctor";
  config.key = make_job_key();
  config.start_timeout = config.deadline = config.stall_limit = kPatience;
  std::array<std::string, kRanks> wrong;
  {
    const std::jthread other([&] { wrong[1] = reduce_as(1, config); });
    wrong[0] = reduce_as(0, config);
  }
  return wrong[0].empty() ? wrong[1] : wrong[0];
}

// The value of a setting. A key is never shown, only its location.
std::string value_of(const Setting& setting, const Config& config) {
  std::string value = value_in(config, setting);
  if (!value.empty()) return value;
  const char* text = std::getenv(setting.name);
  return text == nullptr ? default_of(setting) : text;
}

// The job and rank that this process would have by its environment.
void add_start(DoctorReport& report, const Config& config) {
  const Launcher& launcher = config.launcher;
  const char* const places[] = {"HORO_ADDR", "a socket of this host", "the launcher's store"};
  Section& start = report.section("start");
  start.add("launcher", launcher.name.empty() ? Value() : Value(launcher.name + " (" + launcher.found + ")"));
  start.add("rank", std::int64_t{config.rank});
  start.add("size", std::int64_t{config.size});
  start.add("meet_by",
            config.size == 1 ? Value() : Value(std::string(places[static_cast<std::size_t>(config.meet_by)])));
  start.add("job_key", config.key.has_value());
  if (launcher.remark.empty()) return;
  report.hints.push_back({launcher.remark, "set HORO_RANK, HORO_SIZE and HORO_ADDR if another job is meant"});
}

}  // namespace

void examine_settings(DoctorReport& report) {
  Config config;
  try {
    config = config_from([](const char* name) { return std::getenv(name); });
  } catch (const std::exception& error) {
    report.problems.push_back({error.what(),
                               "set it to an expected value, or unset it: docs/settings.md and "
                               "'horo doctor --settings' list the values of each setting"});
  }
  for (const std::string& unknown : unknown_settings_in_environment()) {
    report.problems.push_back({unknown, "correct the name, or unset it: it has no effect"});
  }
  for (const std::string& remark : horovod_remarks(config.size > 1)) {
    report.hints.push_back({remark, "unset it, if it was meant for this job"});
  }
  add_start(report, config);
  Section settings{"settings", {}}, set{"set_in_environment", {}};
  for (const Setting& setting : all_settings()) {
    settings.add(setting.name, value_of(setting, config));
    if (const char* text = std::getenv(setting.name)) set.add(setting.name, std::string(text));
  }
  report.sections.push_back(std::move(settings));
  report.sections.push_back(std::move(set));
}

void examine_by_running(DoctorReport& report) {
  const auto begin = Clock::now();
  std::string wrong;
  try {
    wrong = reduce_on_two_ranks();
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  Section& check = report.section("check");
  check.add("all_reduce", wrong.empty() ? std::string("right") : wrong);
  check.add("took_us", static_cast<std::int64_t>(took.count()));
  if (wrong.empty()) return;
  report.problems.push_back({"an all_reduce of 100000 floats on 2 ranks over 127.0.0.1 failed: " + wrong,
                             "solve the other problems first (descriptors, loopback); if there are none, this is a "
                             "bug of horo or a broken machine: report it with the output of 'horo doctor --json'"});
}

}  // namespace horo::tools
