// Limits of open files that are too small for the job.

#include "ring/os/descriptors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <stdexcept>

namespace horo::test {
namespace {

using testing::HasSubstr;

// Lowers the limit for the life of the object.
class Limit {
 public:
  explicit Limit(rlim_t most) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lower{most, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &lower);
  }
  ~Limit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  rlimit before_{};
};

Config config_for(int rank, int size) {
  Config config;
  config.rank = rank;
  config.size = config.local_size = size;
  return config;
}

std::string complaint(const Config& config) {
  try {
    check_descriptors(config);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(Descriptors, ATooLowLimitIsAnErrorWithTheNumberAndTheRemedy) {
  const Limit limit(256);
  const std::string text = complaint(config_for(1, 128));
  EXPECT_THAT(text, HasSubstr("rank 1 needs 272 descriptors for connections to 127 other ranks"));
  EXPECT_THAT(text, HasSubstr("may open 256 (RLIMIT_NOFILE)"));
  EXPECT_THAT(text, HasSubstr("ulimit -n "));
}

TEST(Descriptors, AHighEnoughLimitIsNoError) {
  const Limit limit(256);
  EXPECT_EQ(complaint(config_for(0, 16)), "");
}

TEST(Descriptors, RankZeroNeedsMost) {
  const Limit limit(512);
  EXPECT_EQ(complaint(config_for(1, 192)), "");
  EXPECT_NE(complaint(config_for(0, 192)), "");
}

}  // namespace
}  // namespace horo::test
