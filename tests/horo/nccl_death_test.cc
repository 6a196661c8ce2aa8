// Calls of NCCL and of the driver that never return.

#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <thread>

#include "tests/horo/device_calls.h"

namespace horo {
namespace {

using namespace std::chrono_literals;

using enum CollectiveKind;

TEST(NcclDeathTest, AProcessInWhichNcclHangsEndsWithAMessage) {
  if (HORO_SANITIZED) GTEST_SKIP() << "it waits for 20 s, and shows nothing of memory or threads";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto shut_down = [] {
    ::setenv("HORO_FAKE_NCCL_HANGS", "1", 1);
    Config config = on_fake_nccl();
    config.deadline = 1s;
    const auto once = [](Session& session) {
      on_device(session, call_of(kAllReduce, session, 10), 0);
      session.shutdown();
    };
    run_nccl(1, once, config);
  };
  EXPECT_EXIT(shut_down(), testing::ExitedWithCode(1), "NCCL has not ended its work 10 s after ncclCommAbort");
}

TEST(NcclDeathTest, AProcessInWhichTheDriverHangsEndsWithAMessage) {
  if (HORO_SANITIZED) GTEST_SKIP() << "it waits for 10 s, and shows nothing of memory or threads";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto abort = [] {
    Config config = on_fake_nccl();
    config.deadline = 1s;
    config.gpu_backend = "host";
    const auto once = [](Session& session) {
      ::setenv("HORO_FAKE_CUDA_HANGS", "copy_to_host", 1);
      const std::jthread other([&] {
        std::promise<void>().get_future().wait_for(300ms);  // until the lane is in the call
        session.abort("the end of this test");
      });
      on_device(session, call_of(kAllReduce, session, 10), 0);
    };
    run_nccl(1, once, config);
  };
  EXPECT_EXIT(abort(), testing::ExitedWithCode(1), "a call to a device has not returned 10 s after the stop");
}

}  // namespace
}  // namespace horo
