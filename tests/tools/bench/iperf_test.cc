#include "tools/horo/bench/iperf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace horo::tools {
namespace {

TEST(BenchIperf, ReceivedRatesAreReadFromTheReport) {
  const std::string report = R"({"end": {"sum_sent": {"bits_per_second": 3e9}, "sum_received": {"bits_per_second": 2e9},
      "sum_received_bidir_reverse": {"bits_per_second": 1e9}}})";
  EXPECT_EQ(throughput_in(report, Direction::kToServer).to_server, 2);
  EXPECT_EQ(throughput_in(report, Direction::kToServer).to_client, 0);
  EXPECT_EQ(throughput_in(report, Direction::kToClient).to_client, 2) << "then the client receives";
  EXPECT_EQ(throughput_in(report, Direction::kBoth).to_server, 2);
  EXPECT_EQ(throughput_in(report, Direction::kBoth).to_client, 1);
}

std::string problem_with(const std::string& report) {
  try {
    throughput_in(report, Direction::kBoth);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "none";
}

TEST(BenchIperf, TheErrorHasTheTextOfIperf) {
  EXPECT_EQ(problem_with(R"({"end": {}, "error": "unable to connect to server"})"),
            "iperf3: unable to connect to server");
  EXPECT_THAT(problem_with("Segmentation fault"), ::testing::HasSubstr("not JSON: Segmentation fault"));
  EXPECT_THAT(problem_with(R"({"end": {}})"), ::testing::HasSubstr("not as expected"));
}

}  // namespace
}  // namespace horo::tools
