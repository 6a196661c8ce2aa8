// What a device has no room for: the error names the rank, the device and the setting, on all ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/horo/device_calls.h"

namespace horo {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Sets a variable of the fake until the end of the test.
class FakeFails {
 public:
  explicit FakeFails(const char* calls) { ::setenv("HORO_FAKE_CUDA_FAIL", calls, 1); }
  ~FakeFails() { ::unsetenv("HORO_FAKE_CUDA_FAIL"); }
  FakeFails(const FakeFails&) = delete;
  FakeFails& operator=(const FakeFails&) = delete;
};

// Ranks connect with their first collective, so all learn it before the others wait in that.
TEST(DeviceRefusals, NoMemoryToConnectIsToldWithRankDeviceAndSetting) {
  const FakeFails fails("allocate_blocking@1");
  const auto thrown = run_nccl(3, [](Session& session) {
    const CudaStream stream = make_stream();
    DeviceMemory memory(stream, 4'000);
    outcome_of(session, submit_sum(session, "weights", memory, stream));
  });
  EXPECT_THAT(thrown,
              Each(AllOf(HasSubstr("HORO_GPU_BACKEND=nccl: rank 1: cuda:1: allocating"),
                         HasSubstr("for sums by NCCL (HORO_GPU_BACKEND=host"), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"))));
}

TEST(DeviceRefusals, NoMemoryForABucketIsToldWithRankDeviceAndSetting) {
  const FakeFails fails("allocate_blocking@1:2");  // after those that connect
  const auto thrown = run_nccl(3, [](Session& session) {
    const CudaStream stream = make_stream();
    std::vector<std::unique_ptr<DeviceMemory>> memories;
    std::vector<Submission> all;
    for (int i = 0; i < 4; ++i) {
      TensorSpec spec = float_spec("gradient " + std::to_string(i), 1'000);
      spec.device = DeviceType::kCuda;
      memories.push_back(std::make_unique<DeviceMemory>(stream, 4'000));
      all.push_back({session.declare(spec), memories.back()->data(), memories.back()->data()});
      all.back().ready = session.record(session.topology().rank, stream);
    }
    const auto works = session.submit(all);
    EXPECT_TRUE(session.wait(works, TimePoint::max()));
    for (const auto& work : works) work->outcome();
  });
  const auto words = AllOf(HasSubstr("cuda:1: allocating"), HasSubstr("for buckets (HORO_BUCKET_BYTES)"),
                           HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_THAT(thrown, ElementsAre(AllOf(HasSubstr("rank 1"), words), words, AllOf(HasSubstr("rank 1"), words)));
}

TEST(DeviceRefusals, NoMemoryForTheShardsOfASumIsToldWithRankDeviceAndSetting) {
  const FakeFails fails("allocate_blocking@2:2");
  const auto thrown = run_nccl(3, [](Session& session) {
    const CudaStream stream = make_stream();
    DeviceMemory memory(stream, 1 << 20);
    TensorSpec spec = float_spec("weights", 1 << 18);  // more than connecting needs
    spec.device = DeviceType::kCuda;
    Submission submission{0, memory.data(), memory.data()};
    submission.ready = session.record(session.topology().rank, stream);
    outcome_of(session, session.submit(spec, submission));
  });
  const auto words = AllOf(HasSubstr("cuda:2: allocating"), HasSubstr("for sums by NCCL (HORO_GPU_BACKEND=host"),
                           HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_THAT(thrown, ElementsAre(AllOf(HasSubstr("rank 2"), words), AllOf(HasSubstr("rank 2"), words), words));
}

// The driver then copies by way of memory of its own.
TEST(DeviceRefusals, MemoryOfTheHostThatCannotBePinnedHasTheSameBits) {
  const FakeFails fails("pin");
  const auto before = device_counts();
  const auto thrown = run_world(
      2,
      [](Session& session) {
        expect_equal_bits(session, call_of(CollectiveKind::kAllReduce, session, 1'000));
        meet(session);
      },
      on_fake());
  EXPECT_THAT(thrown, Each(""));
  EXPECT_EQ(device_counts().pinned, before.pinned);
}

}  // namespace
}  // namespace horo
