// The file of the job's key.
#include "tools/horo/run/host_start.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <system_error>

namespace horo::tools {
namespace {

TEST(KeyFile, TooFewDescriptorsAreNotTheRefusalOfASandbox) {
  if (HORO_SANITIZED) GTEST_SKIP() << "UBSan opens a pipe to look at an object";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  int error = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  try {
    make_key_file(JobKey{});
  } catch (const std::system_error& failed) {
    error = failed.code().value();
  } catch (const std::exception&) {
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(error, EMFILE);
}

}  // namespace
}  // namespace horo::tools
