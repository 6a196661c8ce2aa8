// The file of the job's key.
#include "tools/horo/run/host_start.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <exception>
#include <system_error>

namespace horo::tools {
namespace {

TEST(KeyFile, TooFewDescriptorsAreNotTheRefusalOfASandbox) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  std::exception_ptr thrown;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  try {
    make_key_file(JobKey{});
  } catch (...) {
    thrown = std::current_exception();  // looked at later: UBSan opens a pipe to look at an object
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_NE(thrown, nullptr);
  int error = 0;
  try {
    std::rethrow_exception(thrown);
  } catch (const std::system_error& failed) {
    error = failed.code().value();
  } catch (const std::exception&) {
  }
  EXPECT_EQ(error, EMFILE);
}

}  // namespace
}  // namespace horo::tools
