// Tensors on devices: the same bits as on the host, for every kind of collective, on the fake of CUDA.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <numeric>

#include "tests/horo/device_calls.h"

namespace horo {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using enum CollectiveKind;

constexpr int kDeviceRanks = 3;

TEST(Devices, EveryKindHasTheBitsOfTheHost) {
  const auto thrown = run_world(
      kDeviceRanks,
      [](Session& session) {
        const int rank = session.topology().rank;
        for (const std::int64_t rows : {1, 7, 1'000}) {
          for (const CollectiveKind kind : {kAllReduce, kBroadcast, kReduce}) {
            Call call = call_of(kind, session, rows);
            expect_equal_bits(session, call);
            call.is_in_place = true;
            call.spec.name += " in place";
            if (kind != kReduce) expect_equal_bits(session, call);
          }
          Call gather = call_of(kAllGather, session, rows + rank);
          gather.spec.name = "gather" + std::to_string(rows);
          gather.out_bytes = static_cast<std::size_t>(kDeviceRanks * rows + 3) * 12;
          expect_equal_bits(session, gather);
          Call rooted = call_of(kGather, session, rows);
          rooted.out_bytes = rank == rooted.spec.root ? static_cast<std::size_t>(kDeviceRanks * rows) * 12 : 0;
          expect_equal_bits(session, rooted);
          Call dealt = call_of(kScatter, session, 3 * rows);
          dealt.out_bytes = static_cast<std::size_t>(rows) * 12;
          expect_equal_bits(session, dealt);
          Call scatter = call_of(kReduceScatter, session, rows);
          scatter.out_bytes =
              static_cast<std::size_t>(rows_for_each({}, rows, kDeviceRanks)[static_cast<std::size_t>(rank)]) * 12;
          expect_equal_bits(session, scatter);
          Call all_to_all = call_of(kAllToAll, session, 3 * rows);
          all_to_all.splits = {rows, 0, 2 * rows};
          all_to_all.out_bytes = static_cast<std::size_t>(kDeviceRanks * 3 * rows) * 12;
          expect_equal_bits(session, all_to_all);
        }
        meet(session);
      },
      on_fake());
  EXPECT_THAT(thrown, Each(""));
}

TEST(Devices, CodecsAdasumAndCustomOperationsHaveTheBitsOfTheHost) {
  const auto thrown = run_world(
      kDeviceRanks,
      [](Session& session) {
        for (const char* codec : {"fp16", "int8"}) {
          Call call = call_of(kAllReduce, session, 1'000);
          call.spec.codec = codec;
          call.spec.name = codec;
          expect_equal_bits(session, call);
        }
        Call call = call_of(kAllReduce, session, 500);
        call.spec.op = ReduceOp::kAdasum;
        expect_equal_bits(session, call);
        meet(session);
      },
      on_fake());
  EXPECT_THAT(thrown, Each(""));
}

// Gradients of a step: many tensors in buckets, submitted before their values are there.
TEST(Devices, BucketsOfLateTensorsHaveTheBitsOfTheHost) {
  const auto thrown = run_world(
      kDeviceRanks,
      [](Session& session) {
        const int rank = session.topology().rank;
        const CudaStream stream = make_stream();
        constexpr int kTensors = 20;
        for (int step = 0; step < 10; ++step) {
          std::vector<std::unique_ptr<DeviceMemory>> memories;
          std::vector<std::shared_ptr<Work>> works;
          std::vector<std::vector<std::byte>> expected;
          for (int i = 0; i < kTensors; ++i) {
            TensorSpec spec = float_spec("gradient " + std::to_string(i), 10 + 100 * i);
            Call call{spec, bytes_of_floats(spec.elements(), static_cast<std::uint64_t>(1'000 * step + 10 * i + rank))};
            memories.push_back(std::make_unique<DeviceMemory>(stream, call.in.size()));
            memories.back()->write(call.in);
            spec.device = DeviceType::kCuda;
            spec.stepwise = true;
            Submission submission{session.declare(spec), memories.back()->data(), memories.back()->data()};
            submission.ready = session.record(0, stream);
            works.push_back(session.submit(submission));
            call.is_in_place = true;
            call.spec.name += " of step " + std::to_string(step);
            expected.push_back(on_host(session, call));
          }
          EXPECT_TRUE(session.wait(works, TimePoint::max()));
          for (int i = 0; i < kTensors; ++i) {
            works[static_cast<std::size_t>(i)]->outcome();
            EXPECT_EQ(memories[static_cast<std::size_t>(i)]->read(), expected[static_cast<std::size_t>(i)]) << i;
          }
          session.step_end(0);
        }
        meet(session);
      },
      on_fake());
  EXPECT_THAT(thrown, Each(""));
}

TEST(Devices, AnotherDeviceOnAnotherRankIsAMismatchByName) {
  const auto thrown = run_world(
      2,
      [](Session& session) {
        const CudaStream stream = make_stream();
        DeviceMemory memory(stream, 12);
        std::array<float, 3> values{};
        for (const CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kSendRecv}) {
          TensorSpec spec = float_spec("weights", 3);
          spec.kind = kind;
          spec.peer = kind == CollectiveKind::kSendRecv ? 1 : spec.peer;
          Submission submission{0, values.data(), values.data()};
          if (session.topology().rank == 1) {
            spec.device = DeviceType::kCuda;
            submission.in = submission.out = memory.data();
            submission.ready = session.record(0, stream);
          }
          EXPECT_THAT(
              thrown_by([&] { outcome_of(session, session.submit(spec, submission)); }),
              AllOf(HasSubstr("'weights"), HasSubstr("device cpu on rank 0"), HasSubstr("device cuda on rank 1")));
        }
        meet(session);
      },
      on_fake());
  EXPECT_THAT(thrown, Each(""));
}

TEST(Devices, WhatADeviceCannotDoIsRefusedByName) {
  const auto thrown = run_world(
      1,
      [](Session& session) {
        TensorSpec spec = float_spec("weights", 3);
        spec.device = DeviceType::kCuda;
        std::array<float, 3> values{};
        EXPECT_THAT(thrown_by([&] { session.submit(spec, values.data(), values.data()); }),
                    HasSubstr("tensor 'weights': it is declared on a device, and its memory on the CPU"));
        EXPECT_THAT(thrown_by([&] { session.record(8, nullptr); }),
                    HasSubstr("device 8: this process has 8 CUDA devices, with numbers from 0"));
        EXPECT_THAT(thrown_by([&] { session.record(0, make_stream(true)); }),
                    HasSubstr("cuda:0: the current stream is being captured into a CUDA graph"));
        Submission submission{0, values.data(), values.data()};
        submission.ready = session.record(0, nullptr);
        EXPECT_THAT(thrown_by([&] { session.submit(spec_of(kBroadcast, "b", {3}), submission); }),
                    HasSubstr("tensor 'b': it is declared on the CPU, and its memory is on a device"));
      },
      on_fake());
  EXPECT_THAT(thrown, Each(""));
}

TEST(Devices, AKeyOfTheHostTakesNoMemoryOfADeviceAndViceVersa) {
  const auto thrown = run_world(
      1,
      [](Session& session) {
        std::array<float, 3> values{};
        TensorSpec on_host = float_spec("host", 3), on_cuda = float_spec("cuda", 3), empty = float_spec("empty", 0);
        on_cuda.device = empty.device = DeviceType::kCuda;
        Submission submission{session.declare(on_host), values.data(), values.data()};
        submission.ready = session.record(0, nullptr);
        EXPECT_THAT(thrown_by([&] { session.submit(submission); }), HasSubstr("its memory is on a device"));
        for (const TensorSpec& spec : {on_cuda, empty}) {
          EXPECT_THAT(thrown_by([&] {
                        session.submit({session.declare(spec), values.data(), values.data()});
                      }),
                      HasSubstr("its memory on the CPU"));
        }
      },
      on_fake());
  EXPECT_THAT(thrown, Each(""));
}

// A model whose layers are on two devices: the coordinator may put their gradients into one bucket.
TEST(Devices, TensorsOfTwoDevicesShareABucket) {
  const auto thrown = run_world(
      2,
      [](Session& session) {
        std::vector<std::unique_ptr<DeviceMemory>> memories;
        std::vector<Submission> all;
        for (int i = 0; i < 6; ++i) {
          const CudaStream stream = make_stream();
          TensorSpec spec = float_spec("gradient " + std::to_string(i), 10);
          spec.device = DeviceType::kCuda;
          memories.push_back(std::make_unique<DeviceMemory>(stream, 40));
          memories.back()->write(bytes_of_floats(10, static_cast<std::uint64_t>(i)));
          all.push_back({session.declare(spec), memories.back()->data(), memories.back()->data()});
          all.back().ready = session.record(i % 2, stream);
        }
        const auto works = session.submit(all);
        EXPECT_TRUE(session.wait(works, TimePoint::max()));
        for (std::size_t i = 0; i < works.size(); ++i) {
          works[i]->outcome();
          std::array<float, 10> one{}, sum{};
          std::memcpy(one.data(), bytes_of_floats(10, i).data(), 40);
          std::memcpy(sum.data(), memories[i]->read().data(), 40);
          for (std::size_t k = 0; k < 10; ++k) EXPECT_EQ(sum[k], 2 * one[k]);
        }
        meet(session);
      },
      on_fake());
  EXPECT_THAT(thrown, Each(""));
}

// A kernel of another library may wait on the stream for a rank that is lost.
TEST(Devices, AStreamThatNeverEndsDoesNotHoldUpTheEndOfASession) {
  const auto thrown = run_world(
      1,
      [](Session& session) {
        const CudaStream stream = make_stream();
        DeviceMemory memory(stream, 12);
        memory.keep();
        from_fake<decltype(fake_cuda_block)>("fake_cuda_block")(stream);
        TensorSpec spec = float_spec("weights", 3);
        spec.device = DeviceType::kCuda;
        Submission submission{0, memory.data(), memory.data()};
        submission.ready = session.record(0, stream);
        const auto work = session.submit(spec, submission);
        EXPECT_FALSE(session.wait(std::span(&work, 1), Clock::now() + std::chrono::milliseconds(50)));
        session.abort("the test ends it");
        EXPECT_TRUE(session.wait(std::span(&work, 1), Clock::now() + std::chrono::seconds(10)));
        EXPECT_THAT(thrown_by([&] { work->outcome(); }), HasSubstr("the test ends it"));
      },
      on_fake());
  EXPECT_THAT(thrown, Each(""));
}

TEST(Devices, WithoutAPlugInTheReasonNamesThePathAndTheSetting) {
  Config config;
  config.cuda_library = "/nowhere/libhoro_cuda.so";
  const auto thrown = run_world(
      1,
      [](Session& session) {
        TensorSpec spec = float_spec("weights", 3);
        spec.device = DeviceType::kCuda;
        EXPECT_THAT(
            thrown_by([&] { session.declare(spec); }),
            AllOf(HasSubstr("CUDA tensors: there is no /nowhere/libhoro_cuda.so"), HasSubstr("HORO_CUDA_LIBRARY")));
      },
      config);
  EXPECT_THAT(thrown, Each(""));
}

TEST(Devices, AnErrorOfADeviceEndsTheJobWithCallAndDevice) {
  ::setenv("HORO_FAKE_CUDA_FAIL", "copy_to_device", 1);  // every call
  const auto thrown = run_world(
      1,
      [](Session& session) {
        const CudaStream stream = make_stream();
        DeviceMemory memory(stream, 12);
        TensorSpec spec = float_spec("weights", 3);
        spec.device = DeviceType::kCuda;
        Submission submission{0, memory.data(), memory.data()};
        submission.ready = session.record(1, stream);
        outcome_of(session, session.submit(spec, submission));
      },
      on_fake());
  ::unsetenv("HORO_FAKE_CUDA_FAIL");
  EXPECT_THAT(thrown, ElementsAre(HasSubstr("cuda:1: copying to the device: error 700 of the fake")));
}

TEST(Devices, NothingIsLeftOfASession) {
  FakeCudaCounts before{}, after{};
  const auto counts = from_fake<decltype(fake_cuda_counts)>("fake_cuda_counts");
  counts(&before);
  const auto thrown = run_world(
      2,
      [](Session& session) {
        for (int i = 0; i < 20; ++i) {
          Call call = call_of(kAllReduce, session, 100 + i);
          call.is_in_place = true;
          const CudaStream stream = nullptr;
          DeviceMemory memory(stream, call.in.size());
          memory.write(call.in);
          call.spec.device = DeviceType::kCuda;
          Submission submission{0, memory.data(), memory.data()};
          submission.ready = session.record(0, stream);
          outcome_of(session, session.submit(call.spec, submission));
        }
        meet(session);
      },
      on_fake());
  EXPECT_THAT(thrown, Each(""));
  counts(&after);
  EXPECT_LE(after.pins, before.pins + 4) << "pinned memory is used again";
  EXPECT_LE(after.streams, before.streams + 1) << "the default stream may be new";
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.pinned, before.pinned);
  EXPECT_EQ(after.without_device, 0) << "calls without a current device";
}

}  // namespace
}  // namespace horo
