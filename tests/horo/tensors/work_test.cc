#include "horo/tensors/work.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "horo/base/error.h"
#include "ring/cuda/cuda_device.h"
#include "tests/horo/fake_device.h"

namespace horo {
namespace {

using namespace std::chrono_literals;

// An event of a stream of the fake device, which passes late, or never.
class IssuedWork : public testing::Test {
 protected:
  std::shared_ptr<const DeviceEvent> record(bool is_blocked) {
    const CudaStream stream = make_stream();
    if (is_blocked) from_fake<decltype(fake_cuda_block)>("fake_cuda_block")(stream);
    return std::make_shared<const DeviceEvent>(devices_.device(0), stream);
  }

  const Config config_ = on_fake();
  CudaDevices devices_{config_};
  Work work_{Key{3}};
};

TEST_F(IssuedWork, EndsWhenItsEventIsComplete) {
  Outcome outcome;
  outcome.counts = {7};
  work_.issue(std::move(outcome), record(false));
  EXPECT_TRUE(work_.wait_until_issued(TimePoint()));
  EXPECT_TRUE(work_.wait_until(TimePoint::max()));
  EXPECT_TRUE(work_.finished());
  EXPECT_EQ(work_.outcome().counts.at(0), 7);
}

TEST_F(IssuedWork, HasNotEndedWhileTheDeviceIsBusy) {
  work_.issue({}, record(true));
  EXPECT_TRUE(work_.is_issued());
  EXPECT_FALSE(work_.wait_until(Clock::now() + 5ms));
  EXPECT_FALSE(work_.finished());
  EXPECT_NO_THROW(work_.outcome());
}

TEST_F(IssuedWork, MayFailBeforeTheDeviceIsDone) {
  work_.issue({}, record(true));
  std::jthread waits([&] { EXPECT_TRUE(work_.wait_until(TimePoint::max())); });
  work_.fail(peer_lost(1, "rank 1 is gone"));
  waits.join();
  EXPECT_THROW(work_.outcome(), PeerLost);
}

TEST_F(IssuedWork, DoesNotFailAfterItsEnd) {
  work_.issue({}, record(false));
  EXPECT_TRUE(work_.wait_until(TimePoint::max()));
  work_.fail(peer_lost(1, "rank 1 is gone"));
  EXPECT_NO_THROW(work_.outcome());
}

// The reason is known later than that the device writes no results.
TEST_F(IssuedWork, ThatIsHeldDoesNotEndWithTheDevice) {
  int held = 0;
  for (int i = 0; i < 200 && held < 3; ++i) {
    const auto event = record(false);
    Work work(Key{3});
    work.issue({}, event);
    if (!work.begin_failure(nullptr)) continue;  // the device was done
    ++held;
    event->wait();
    EXPECT_FALSE(work.wait_until(Clock::now() + 2ms));
    EXPECT_TRUE(work.begin_failure(peer_lost(1, "rank 1 is gone")));
    EXPECT_FALSE(work.finished());
    work.end_failed();
    EXPECT_THROW(work.outcome(), PeerLost);
  }
  EXPECT_EQ(held, 3);
}

TEST_F(IssuedWork, FailsWithTheErrorOfItsDevice) {
  work_.issue({}, record(true));
  ::setenv("HORO_FAKE_CUDA_FAIL", "event_query", 1);
  EXPECT_TRUE(work_.wait_until(TimePoint::max()));
  ::unsetenv("HORO_FAKE_CUDA_FAIL");
  EXPECT_THROW(work_.outcome(), std::runtime_error);
}

TEST(Work, EachWaitingThreadGetsTheWholeFailure) {
  for (int round = 0; round < 50; ++round) {
    auto work = std::make_shared<Work>(Key{3});
    std::vector<std::string> texts(4);
    {
      std::vector<std::jthread> threads;
      for (std::string& text : texts) {
        threads.emplace_back([work, &text] {
          work->wait_until(TimePoint::max());
          try {
            work->outcome();
          } catch (const PeerLost& lost) {
            text = lost.what() + std::to_string(lost.origin());
          }
        });
      }
      work->fail(peer_lost(2, "rank 2 is gone: "));
      work.reset();
    }
    for (const std::string& text : texts) EXPECT_EQ(text, "rank 2 is gone: 2");
  }
}

TEST(Failure, IsRethrownWithItsOriginalType) {
  const auto round_trip = [](const auto& error) {
    FailurePtr failure;
    try {
      throw error;
    } catch (...) {
      failure = current_failure();
    }
    failure->raise();
  };
  EXPECT_THROW(round_trip(Mismatch("m")), Mismatch);
  EXPECT_THROW(round_trip(PeerLost(1, "p")), PeerLost);
  EXPECT_THROW(round_trip(ShutDown("s")), ShutDown);
  EXPECT_THROW(round_trip(std::bad_alloc()), std::runtime_error);
}

}  // namespace
}  // namespace horo
