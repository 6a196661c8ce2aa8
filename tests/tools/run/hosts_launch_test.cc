// What horo run --hosts starts on each host, without starting it.
#include "tools/horo/run/hosts_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace horo::tools {
namespace {

using testing::HasSubstr;

std::string refusal(const RunOptions& options) {
  try {
    hosts_launch_of(options);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

RunOptions on_two_hosts() {
  RunOptions options;
  options.hosts = "localhost:1,192.0.2.1:1";
  options.addr = "127.0.0.1:29400";
  options.command = {"true"};
  return options;
}

TEST(HostsLaunch, ARendezvousHasAnotherKeyThanTheJob) {
  RunOptions options = on_two_hosts();
  options.min_ranks = 1;
  options.rendezvous = "127.0.0.1:7000";
  EXPECT_THAT(refusal(options),
              HasSubstr("--hosts localhost:1,192.0.2.1:1 and --rendezvous: expected no --rendezvous"));
}

TEST(HostsLaunch, ThePlanHasTheVariablesOfAllHosts) {
  HostsLaunch launch;
  launch.hosts = {{"localhost", 1, true}, {"node1", 1, false}};
  launch.horo_run = {{"run"}, {"run"}};
  launch.commands = {{"horo", "host"}, {"ssh", "node1"}};
  launch.variables = {"HORO_LOG_LEVEL=debug", "A=two words=1"};
  testing::internal::CaptureStdout();
  print_hosts_plan(launch);
  const std::string plan = testing::internal::GetCapturedStdout();
  const std::string variables = "\n    HORO_LOG_LEVEL=debug\n    A='two words=1'\n";
  EXPECT_THAT(plan, HasSubstr(variables));
  EXPECT_THAT(plan.substr(plan.find("host node1")), HasSubstr(variables));
}

}  // namespace
}  // namespace horo::tools
