#include "horo/steps/device_steps.h"

#include <gmock/gmock.h>
#include <malloc.h>

#include <future>
#include <set>
#include <vector>

#include "horo/steps/steps.h"
#include "tests/effort.h"
#include "tests/horo/steps/times.h"

namespace horo::test {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Lt;

constexpr int kFailure = 700;

// A device of which nothing runs: a stream is busy for as long as a test says.
struct QuietDevice {
  struct Event {
    TimePoint reached;
  };
  TimePoint busy_until;                  // the stream of the caller
  TimePoint horizon = TimePoint::max();  // what is reached later has not ended yet
  std::set<Event*> events;
  int queries = 0, error = 0;
  bool is_capturing = false;

  void spend(std::int64_t of_ms) { busy_until = std::max(busy_until, Clock::now()) + ms(of_ms); }
};

QuietDevice* quiet = nullptr;
int the_stream = 0, idle_stream = 0;

CudaApi quiet_api() {
  CudaApi api{};
  api.enter = [](int) { return 0; };
  api.leave = [] { return 0; };
  api.stream_create = [](CudaStream* stream) {
    *stream = &idle_stream;
    return 0;
  };
  api.stream_destroy = [](CudaStream) { return 0; };
  api.stream_is_capturing = [](CudaStream, bool* is_capturing) {
    *is_capturing = quiet->is_capturing;
    return 0;
  };
  api.event_create_timed = [](CudaEvent* event) {
    *event = *quiet->events.insert(new QuietDevice::Event).first;
    return 0;
  };
  api.event_destroy = [](CudaEvent event) {
    quiet->events.erase(static_cast<QuietDevice::Event*>(event));
    delete static_cast<QuietDevice::Event*>(event);
    return 0;
  };
  api.event_record = [](CudaEvent event, CudaStream stream) {
    const TimePoint now = Clock::now();
    static_cast<QuietDevice::Event*>(event)->reached = stream == &the_stream ? std::max(now, quiet->busy_until) : now;
    return quiet->error;
  };
  api.event_query = [](CudaEvent event, bool* is_complete) {
    ++quiet->queries;
    *is_complete = static_cast<QuietDevice::Event*>(event)->reached <= quiet->horizon;
    return quiet->error;
  };
  api.event_elapsed = [](CudaEvent from, CudaEvent to, float* of_ms, bool* are_complete) {
    const TimePoint begin = static_cast<QuietDevice::Event*>(from)->reached;
    const TimePoint end = static_cast<QuietDevice::Event*>(to)->reached;
    *are_complete = begin <= quiet->horizon && end <= quiet->horizon;
    *of_ms = std::chrono::duration<float, std::milli>(end - begin).count();
    return quiet->error;
  };
  return api;
}

class StepsOfADevice : public testing::Test {
 protected:
  StepsOfADevice() { quiet = &device_; }
  ~StepsOfADevice() override { steps_.reset(); }

  void mark(MarkKind kind, bool opens) {
    marks_.push_back({kind, opens, Clock::now()});
    if (kind != MarkKind::kCollection)
      steps_->record(card_, &the_stream, static_cast<std::uint32_t>(marks_.size() - 1));
  }
  void end() {
    if (is_on_device_) steps_->record(card_, &the_stream, Steps::kEndOfStep);
    StepEnd end{.at = Clock::now()};
    end.kinds = 0x1f;
    steps_->end(end, marks_);
    marks_.clear();
  }
  void wait(std::int64_t held_up) {
    steps_->waits();
    const TimePoint begin = Clock::now();
    steps_->waited({begin, Clock::now(), 0, true});
    device_.spend(held_up);
    steps_->streams_wait();
  }
  // A step as a script launches it, in no time: its kernels take these milliseconds.
  void launch(std::int64_t forward, std::int64_t backward, std::int64_t held_up, std::int64_t optimizer) {
    mark(MarkKind::kOptimizer, true);
    device_.spend(optimizer);
    mark(MarkKind::kOptimizer, false);
    mark(MarkKind::kInput, true);
    mark(MarkKind::kInput, false);
    device_.spend(forward);
    mark(MarkKind::kBackward, true);
    device_.spend(backward);
    wait(held_up);
    mark(MarkKind::kBackward, false);
    end();
  }
  void expect_sums() {
    const std::vector<StepRecord> steps = steps_->last(100);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(sum_of(steps[i].bars), steps[i].end - steps[i].begin) << i;
      if (i > 0) {
        EXPECT_EQ(steps[i].begin, steps[i - 1].end) << i;
      }
    }
  }
  std::chrono::nanoseconds bar(Bar which) const { return steps_->last_step()->bars[index_of(which)]; }
  // What the test itself takes is part of the bars.
  static auto about(std::int64_t of_ms) { return AllOf(Ge(ms(of_ms) - ms(1)), Lt(ms(of_ms) + ms(5))); }

  QuietDevice device_;
  const CudaApi api_ = quiet_api();
  const CudaDevice card_{api_, 0};
  bool is_on_device_ = true;
  std::vector<StepMark> marks_;
  std::unique_ptr<Steps> steps_ = std::make_unique<Steps>(true, nullptr);
};

TEST_F(StepsOfADevice, KernelsAreInTheBarThatHasLaunchedThemAndAWaitOfTheStreamIsTransfer) {
  end();
  for (int i = 0; i < 4; ++i) launch(80, 170, 60, 30);
  const StepRecord last = *steps_->last_step();
  EXPECT_EQ(last.number, 4U);
  EXPECT_EQ(last.flags, kDeviceTime);
  EXPECT_EQ(last.hidden_transfer_ns, kNotKnown);
  EXPECT_THAT(bar(Bar::kForward), about(80));
  EXPECT_THAT(bar(Bar::kBackward), about(170));
  EXPECT_THAT(bar(Bar::kTransfer), about(60));
  EXPECT_THAT(bar(Bar::kOptimizer), about(30));
  EXPECT_THAT(last.end - last.begin, about(340));
  expect_sums();
}

TEST_F(StepsOfADevice, AnInputTakesTimeWhereTheDeviceIsIdleMeanwhile) {
  const auto input = [&] {
    mark(MarkKind::kInput, true);
    std::promise<void> never;
    never.get_future().wait_for(ms(20));
    mark(MarkKind::kInput, false);
    mark(MarkKind::kBackward, true);
    mark(MarkKind::kBackward, false);
    end();
  };
  end();
  input();
  EXPECT_GE(bar(Bar::kInput), ms(20));
  device_.spend(500);
  input();
  EXPECT_LT(bar(Bar::kInput), ms(5));
  expect_sums();
}

TEST_F(StepsOfADevice, AStepIsDividedWhenTheDeviceHasReachedItsEnd) {
  end();
  device_.horizon = Clock::now();
  launch(80, 20, 0, 10);
  launch(40, 20, 0, 10);
  EXPECT_FALSE(steps_->last_step());
  device_.horizon = TimePoint::max();
  launch(30, 20, 0, 10);
  ASSERT_EQ(steps_->last(100).size(), 3U);
  EXPECT_THAT(steps_->last(2).front().bars[index_of(Bar::kForward)], about(40));
  expect_sums();
}

TEST_F(StepsOfADevice, AStepThatTheDeviceDoesNotReachHasNoTimesOfItAndTheNextOnesDo) {
  end();
  device_.horizon = Clock::now();
  for (std::size_t i = 0; i < DeviceSteps::kMost + 2; ++i) launch(80, 20, 0, 10);
  ASSERT_EQ(steps_->last(100).size(), 2U);
  const StepRecord last = *steps_->last_step();
  EXPECT_EQ(last.flags, kNoDeviceTime);
  for (const Bar unknown : {Bar::kForward, Bar::kBackward, Bar::kAfterBackward, Bar::kOptimizer}) {
    EXPECT_EQ(last.known & bit_of(unknown), 0U);
    EXPECT_EQ(bar(unknown).count(), 0);
  }
  device_.horizon = TimePoint::max();
  launch(80, 20, 0, 10);
  launch(70, 20, 0, 10);
  EXPECT_EQ(steps_->last_step()->flags, kDeviceTime);
  EXPECT_THAT(bar(Bar::kForward), about(70));
  expect_sums();
}

TEST_F(StepsOfADevice, StepsThatTheDeviceHasNotReachedAtTheEndHaveNoTimesOfIt) {
  end();
  for (int i = 0; i < 3; ++i) launch(80, 20, 0, 10);
  device_.horizon = Clock::now();
  for (int i = 0; i < 2; ++i) launch(80, 20, 0, 10);
  steps_->finish();
  const std::vector<StepRecord> found = steps_->last(100);
  ASSERT_EQ(found.size(), 5U);
  EXPECT_EQ(found[1].flags, kDeviceTime);
  EXPECT_EQ(found[4].flags, kNoDeviceTime);
  expect_sums();
}

TEST_F(StepsOfADevice, AStepOfACapturedStreamOrAFailedDeviceHasNoTimesOfIt) {
  end();
  launch(80, 20, 0, 10);
  device_.is_capturing = true;
  launch(80, 20, 0, 10);
  EXPECT_EQ(steps_->last_step()->flags, kNoDeviceTime);
  device_.is_capturing = false;
  launch(80, 20, 0, 10);
  EXPECT_EQ(steps_->last_step()->flags, kDeviceTime);
  device_.error = kFailure;
  launch(80, 20, 0, 10);
  EXPECT_EQ(steps_->last_step()->flags, kNoDeviceTime);
  expect_sums();
}

TEST_F(StepsOfADevice, StepsOfTheHostFollowThoseOfADevice) {
  end();
  device_.horizon = Clock::now();
  launch(80, 20, 0, 10);
  is_on_device_ = false;
  end();
  EXPECT_FALSE(steps_->last_step());
  device_.horizon = TimePoint::max();
  end();
  end();
  ASSERT_EQ(steps_->last(100).size(), 4U);
  EXPECT_EQ(steps_->last_step()->flags, 0U);
  EXPECT_EQ(steps_->last(4).front().flags, kDeviceTime);
  expect_sums();
}

TEST_F(StepsOfADevice, StepsThatAreReachedBeforeTheEndOfTheSessionAreWritten) {
  std::size_t written = 0, told = 0;
  steps_ = std::make_unique<Steps>(
      true, [&](const StepRecord&) { ++written; }, nullptr, nullptr, [&] { ++told; });
  end();
  device_.horizon = Clock::now();
  for (int i = 0; i < 3; ++i) launch(80, 20, 0, 10);
  EXPECT_EQ(written, 0U);
  EXPECT_EQ(told, 3U);
  device_.horizon = TimePoint::max();
  steps_.reset();
  EXPECT_EQ(written, 3U);
}

TEST_F(StepsOfADevice, EventsAreBoundedAndMemoryStaysTheSame) {
  end();
  for (int i = 0; i < 2'000; ++i) launch(1, 1, 1, 1);
  const std::size_t events = device_.events.size(), before = ::mallinfo2().uordblks;
  for (int i = 0; i < effort(100'000); ++i) launch(1, 1, 1, 1);
  EXPECT_LE(device_.events.size(), events + 1);  // the next anchor: there is one after a second
  EXPECT_LE(events, 40U);
  if (!kSanitized) {
    EXPECT_LE(::mallinfo2().uordblks, before + 4'096);
  }
  steps_.reset();
  EXPECT_EQ(device_.events.size(), 0U);
}

TEST_F(StepsOfADevice, AStepWithMoreMarksThanThereAreEventsHasNoTimesOfTheDevice) {
  end();
  for (std::size_t i = 0; i < DeviceMarks::kMostEvents; ++i) {
    mark(MarkKind::kCheckpoint, true);
    mark(MarkKind::kCheckpoint, false);
  }
  end();
  EXPECT_EQ(steps_->last_step()->flags, kNoDeviceTime);
  EXPECT_LE(device_.events.size(), DeviceMarks::kMostEvents);
  launch(80, 20, 0, 10);
  EXPECT_EQ(steps_->last_step()->flags, kDeviceTime);
  expect_sums();
}

}  // namespace
}  // namespace horo::test
