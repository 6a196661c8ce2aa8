// The accounting of steps whose tensors are on devices, by the fakes of CUDA, whose streams are late, and of NCCL.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tests/horo/checkpoint/states.h"
#include "tests/horo/device_calls.h"

namespace horo {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int kSteps = 12;
constexpr std::int64_t kForwardUs = 8'000, kBackwardUs = 5'000, kOptimizerUs = 3'000, kLateUs = 20'000;

// A training loop without a wait of the host: the kernels of its steps are on a stream.
class Loop {
 public:
  explicit Loop(Session& session) : session_(session), rank_(session.topology().rank) {}

  void run() {
    spec_.device = DeviceType::kCuda;
    spec_.stepwise = true;
    const Key key = session_.declare(spec_);
    for (int step = 0; step <= kSteps; ++step) {
      mark(MarkKind::kInput, true);
      mark(MarkKind::kInput, false);
      spend(kForwardUs + (rank_ == 1 ? kLateUs : 0));
      mark(MarkKind::kBackward, true);
      spend(kBackwardUs);
      Submission submission{key, gradient_.data(), gradient_.data()};
      submission.ready = session_.record(rank_, stream_);
      const std::array works = {session_.submit(submission)};
      session_.wait_stream(works, rank_, stream_, TimePoint::max());
      works.front()->outcome();
      session_.end_round(0);
      end();
      mark(MarkKind::kBackward, false);
      mark(MarkKind::kOptimizer, true);
      spend(kOptimizerUs);
      mark(MarkKind::kOptimizer, false);
    }
    gradient_.read();  // what is on the stream has ended
  }

  // Milliseconds, the median of the steps.
  std::int64_t median(Bar bar) const {
    std::vector<std::int64_t> found;
    for (const StepRecord& step : session_.steps().last(kSteps - 2)) {
      found.push_back(step.bars[index_of(bar)] / std::chrono::milliseconds(1));
    }
    std::ranges::sort(found);
    return found[found.size() / 2];
  }

  void end() {
    session_.record_mark(Steps::kEndOfStep, rank_, stream_);
    StepEnd end{.at = Clock::now()};
    end.kinds = 0x1f;
    session_.steps().end(end, marks_);
    marks_.clear();
  }

 private:
  void mark(MarkKind kind, bool opens) {
    session_.record_mark(static_cast<std::uint32_t>(marks_.size()), rank_, stream_);
    marks_.push_back({kind, opens, Clock::now()});
  }
  void spend(std::int64_t us) { from_fake<decltype(fake_cuda_spend)>("fake_cuda_spend")(stream_, us); }

  Session& session_;
  const int rank_;
  const CudaStream stream_ = make_stream();
  TensorSpec spec_ = float_spec("gradient", 1'000);
  DeviceMemory gradient_{stream_, 4'000};
  std::vector<StepMark> marks_;
};

void expect_device_time(Session& session) {
  Loop loop(session);
  loop.run();
  loop.end();
  const std::vector<StepRecord> steps = session.steps().last(100);
  ASSERT_GE(steps.size(), std::size_t{kSteps - 1});
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(std::accumulate(steps[i].bars.begin(), steps[i].bars.end(), std::chrono::nanoseconds{}),
              steps[i].end - steps[i].begin);
    if (i > 0) {
      EXPECT_EQ(steps[i].begin, steps[i - 1].end);
    }
  }
  EXPECT_EQ(steps[steps.size() / 2].flags, kDeviceTime);
  const bool is_late = session.topology().rank == 1;
  const std::int64_t forward = (kForwardUs + (is_late ? kLateUs : 0)) / 1'000;
  EXPECT_GE(loop.median(Bar::kForward), forward);
  EXPECT_LE(loop.median(Bar::kForward), forward + 8);
  EXPECT_GE(loop.median(Bar::kBackward), kBackwardUs / 1'000);
  EXPECT_LE(loop.median(Bar::kBackward), kBackwardUs / 1'000 + 8);
  EXPECT_GE(loop.median(Bar::kOptimizer), kOptimizerUs / 1'000);
  const std::int64_t waits = loop.median(Bar::kTransfer) + loop.median(Bar::kSkew);
  if (is_late) {
    EXPECT_LE(waits, 10);
  } else {
    EXPECT_GE(waits, kLateUs / 1'000 - 8);
  }
}

TEST(DeviceTime, DelaysOfLateStreamsLandInTheirBarsAndTheHostNeverWaits) {
  const std::int64_t waits = device_counts().host_waits;
  EXPECT_THAT(run_world(2, expect_device_time, on_fake_nccl()), Each(""));
  EXPECT_EQ(device_counts().host_waits, waits);
}

// They are divided at the end of a later step, and there is none.
TEST(DeviceTime, TheLastStepsAreInTheFileOfTheJob) {
  const checkpoint::TemporaryFolder folder;
  Config config = on_fake_nccl();
  config.steps = folder / "steps";
  EXPECT_THAT(run_world(
                  2, [](Session& session) { Loop(session).run(); }, config),
              Each(""));
  for (const char* name : {"steps", "steps.rank1"}) {
    const std::string lines = checkpoint::bytes_in_file(folder / name);
    EXPECT_EQ(std::ranges::count(lines, '\n'), kSteps) << lines;
    EXPECT_THAT(lines, HasSubstr("\"step\":" + std::to_string(kSteps) + ","));
  }
}

TEST(DeviceTime, DelaysLandInTheirBarsByWayOfTheHost) {
  EXPECT_THAT(run_world(2, expect_device_time, on_fake()), Each(""));
}

}  // namespace
}  // namespace horo
