#include "horo/tensors/work.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "horo/base/error.h"

namespace horo {
namespace {

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
