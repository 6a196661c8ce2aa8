// Collectives of device tensors by NCCL: the bits of the host where an order shows, works that are issued before the
// device is done, and ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/horo/device_calls.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using enum CollectiveKind;

class NcclRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Nccl, NcclRanks, testing::Values(1, 2, 3, 5, 8));

TEST_P(NcclRanks, CanonicalSumsHaveTheBitsOfTheHost) {
  const auto pins = device_counts().pins;
  const auto thrown = run_nccl(GetParam(), [](Session& session) {
    for (const std::int64_t rows : {1, 7, 1'000, 20'000}) {
      for (const CollectiveKind kind : {kAllReduce, kReduce, kBroadcast, kReduceScatter}) {
        Call call = call_of(kind, session, rows);
        call.spec.root = session.topology().size - 1;
        if (kind == kAllReduce || kind == kReduceScatter) call.spec.root = 0;
        if (kind == kReduceScatter) {
          const auto parts = rows_for_each({}, rows, session.topology().size);
          call.out_bytes = static_cast<std::size_t>(parts[static_cast<std::size_t>(session.topology().rank)]) * 12;
        }
        expect_bits_of_host(session, call);
        call.is_in_place = kind == kAllReduce;
        call.spec.name += " again";
        expect_bits_of_host(session, call);
      }
    }
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_EQ(device_counts().pins, pins) << "nothing goes by way of the host";
}

TEST(Nccl, FactorsAveragesAndOperationsHaveTheBitsOfTheHost) {
  const auto thrown = run_nccl(3, [](Session& session) {
    int number = 0;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
      for (const double factor : {1.0, 0.3}) {
        Call call = call_of(kAllReduce, session, 100);
        call.spec.name = "tensor " + std::to_string(++number);
        call.spec.op = op;
        call.spec.prescale = factor;
        call.spec.postscale = 1.0 / factor;
        expect_bits_of_host(session, call);
        call.spec.dtype = DType::kInt32;  // of the same bytes; NCCL has no factors
        call.spec.name += " of integers";
        expect_bits_of_host(session, call);
      }
    }
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Nccl, EveryTypeHasTheBitsOfTheHost) {
  const auto thrown = run_nccl(3, [](Session& session) {
    for (int number = 0; number <= 16; ++number) {
      const DType dtype = *dtype_from(number);
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax, ReduceOp::kBitXor}) {
        if (!supports(dtype, op)) continue;
        Call call;
        call.spec = spec_of(kAllReduce, std::string(name_of(dtype)) + std::string(name_of(op)), {999});
        call.spec.dtype = dtype;
        call.spec.op = op;
        std::mt19937_64 random(static_cast<std::uint64_t>(session.topology().rank));
        call.in.resize(call.spec.bytes());
        for (std::byte& byte : call.in) byte = static_cast<std::byte>(random());
        if (dtype == DType::kBool) {
          for (std::byte& byte : call.in) byte &= std::byte{1};
        }
        call.out_bytes = call.in.size();
        expect_bits_of_host(session, call);
      }
    }
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Nccl, SumsInAnyOrderAreNcclsOwnAndEqualOnAllRanks) {
  std::mutex mutex;
  std::vector<std::vector<std::byte>> results;
  const auto thrown = run_nccl(3, [&](Session& session) {
    Call call = call_of(kAllReduce, session, 1'000);
    for (std::size_t i = 0; i < 3'000; ++i) {
      const float value = 1.0f / static_cast<float>(1 + i + 100 * static_cast<std::size_t>(session.topology().rank));
      std::memcpy(call.in.data() + i * sizeof(value), &value, sizeof(value));
    }
    call.spec.order = Order::kFast;
    const std::vector<std::byte> fast = on_device(session, call, session.topology().rank);
    call.spec.order = Order::kCanonical;
    EXPECT_NE(fast, on_host(session, call)) << "the fake sums in another order";
    const std::lock_guard lock(mutex);
    results.push_back(fast);
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_THAT(results, Each(results.front()));
}

TEST(Nccl, CountersHaveTheBytesOfEachAlgorithm) {
  const auto thrown = run_nccl(3, [](Session& session) {
    const int rank = session.topology().rank;
    const auto sum = [&](const char* name, std::int64_t rows, Order order) {
      Call call = call_of(kAllReduce, session, rows);
      call.spec.name = name;
      call.spec.order = order;
      on_device(session, call, rank);
    };
    sum("small", 10, Order::kCanonical);
    sum("large", 10'000, Order::kCanonical);
    sum("fast", 10'000, Order::kFast);
    Call call = call_of(kBroadcast, session, 100);
    on_device(session, call, rank);
    const auto row = [&](CollectiveKind kind, const char* algorithm) {
      const auto all = nlohmann::json::parse(session.counters().json())["collectives"];
      const auto found = std::ranges::find_if(
          all, [&](const auto& one) { return one["kind"] == name_of(kind) && one["algorithm"] == algorithm; });
      return found == all.end() ? nlohmann::json() : *found;
    };
    const auto shards = row(kAllReduce, "nccl_shards"), fast = row(kAllReduce, "nccl"), moved = row(kBroadcast, "nccl");
    EXPECT_EQ(shards["count"], 2);
    EXPECT_EQ(shards["payload_bytes"], 120 + 120'000);
    EXPECT_EQ(shards["bytes_sent"], 2 * 120 + 2 * 2 * 40'000) << "all to all, and two thirds twice";
    EXPECT_EQ(shards["bytes_received"], shards["bytes_sent"]);
    EXPECT_EQ(shards["frames_sent"], 0);
    EXPECT_EQ(fast["bytes_sent"], 2 * 80'000);
    EXPECT_EQ(moved["bytes_sent"], rank == 0 ? 0 : 1'200) << "the root is 1: a chain ends at 0";
    EXPECT_EQ(moved["bytes_received"], rank == 1 ? 0 : 1'200);
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

// Gradients of a step: many tensors in buckets, submitted before their values are there, from several streams. The
// caller's stream waits, and not the caller.
TEST(Nccl, StepsOfLateGradientsHaveTheBitsOfTheHost) {
  constexpr std::size_t kTensors = 12;
  const auto pins = device_counts().pins;
  const auto thrown = run_nccl(3, [](Session& session) {
    const int rank = session.topology().rank;
    const CudaStream streams[] = {make_stream(), make_stream()};
    for (std::size_t step = 0; step < 10; ++step) {
      std::vector<std::unique_ptr<DeviceMemory>> memories;
      std::vector<std::shared_ptr<Work>> works;
      std::vector<std::vector<std::byte>> expected;
      for (std::size_t i = 0; i < kTensors; ++i) {
        const CudaStream stream = streams[i % 2];
        TensorSpec spec = float_spec("gradient " + std::to_string(i), 10 + 100 * static_cast<std::int64_t>(i));
        Call call{spec, bytes_of_floats(spec.elements(), 1'000 * step + 10 * i + static_cast<std::size_t>(rank))};
        memories.push_back(std::make_unique<DeviceMemory>(stream, call.in.size()));
        memories.back()->write(call.in);
        spec.device = DeviceType::kCuda;
        spec.stepwise = true;
        Submission submission{session.declare(spec), memories.back()->data(), memories.back()->data()};
        submission.ready = session.record(rank, stream);
        works.push_back(session.submit(submission));
        call.is_in_place = true;
        call.spec.name += " of step " + std::to_string(step);
        expected.push_back(on_host(session, call));
      }
      for (const CudaStream stream : streams) EXPECT_TRUE(session.wait_stream(works, rank, stream, TimePoint::max()));
      for (std::size_t i = 0; i < kTensors; ++i) EXPECT_EQ(memories[i]->read(), expected[i]) << i;
      session.step_end(0);
    }
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_EQ(device_counts().pins, pins);
}

// A caller that runs ahead of its device submits the next step's gradient while the last one is not reduced yet.
TEST(Nccl, ATensorMayBeSubmittedAgainBeforeTheDeviceIsDone) {
  const auto thrown = run_nccl(2, [](Session& session) {
    const int rank = session.topology().rank;
    const CudaStream stream = make_stream();
    DeviceMemory memory(stream, 4'000);
    memory.write(bytes_of_floats(1'000, 5));
    TensorSpec spec = float_spec("weights", 1'000);
    spec.device = DeviceType::kCuda;
    spec.op = ReduceOp::kAverage;
    const Key key = session.declare(spec);
    for (int i = 0; i < 30; ++i) {
      Submission submission{key, memory.data(), memory.data()};
      submission.ready = session.record(rank, stream);
      const auto work = session.submit(submission);
      EXPECT_TRUE(session.wait_stream(std::span(&work, 1), rank, stream, TimePoint::max()));
    }
    EXPECT_EQ(memory.read(), bytes_of_floats(1'000, 5)) << "the mean of equal values";
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Nccl, SetsThatSubmitInOppositeOrdersDoNotWaitForEachOther) {
  const auto thrown = run_nccl(3, [](Session& session) {
    const int rank = session.topology().rank;
    const std::uint32_t first = 0;  // the world
    const auto second = static_cast<std::uint32_t>(outcome_of(session, session.add_set({0, 1}, "pair")).counts.at(0));
    const CudaStream stream = make_stream();
    DeviceMemory one(stream, 4'000), two(stream, 4'000);
    for (int i = 0; i < 20; ++i) {
      std::vector<std::shared_ptr<Work>> works;
      for (const bool is_first : {rank == 1, rank != 1}) {
        if (!is_first && rank == 2) continue;
        TensorSpec spec = float_spec("weights", 1'000);
        spec.set = is_first ? first : second;
        spec.device = DeviceType::kCuda;
        const DeviceMemory& memory = is_first ? one : two;
        Submission submission{0, memory.data(), memory.data()};
        submission.ready = session.record(rank, stream);
        works.push_back(session.submit(spec, submission));
      }
      EXPECT_TRUE(session.wait_stream(works, rank, stream, TimePoint::max()));
    }
    one.read();
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Nccl, ACollectiveThatNeverEndsIsAbortedWithTheOriginOfTheEnd) {
  ::setenv("HORO_FAKE_NCCL_STUCK", "4", 1);  // the second one after those that connect
  const auto thrown = run_nccl(2, [](Session& session) {
    const int rank = session.topology().rank;
    const CudaStream stream = make_stream();
    auto memory = std::make_unique<DeviceMemory>(stream, 4'000);
    TensorSpec spec = float_spec("weights", 1'000);
    spec.device = DeviceType::kCuda;
    std::shared_ptr<Work> work;
    for (int i = 0; i < 3; ++i) {
      spec.name = "weights " + std::to_string(i);
      Submission submission{0, memory->data(), memory->data()};
      submission.ready = session.record(rank, stream);
      work = session.submit(spec, submission);
      EXPECT_TRUE(session.wait_stream(std::span(&work, 1), rank, stream, TimePoint::max()));
    }
    if (rank == 1) {
      EXPECT_FALSE(session.wait(std::span(&work, 1), Clock::now() + 50ms)) << "issued, and never done";
      session.abort("the test ends it");
    }
    EXPECT_TRUE(session.wait(std::span(&work, 1), Clock::now() + 10s));
    EXPECT_THAT(thrown_by([&] { work->outcome(); }), HasSubstr("the test ends it"));
    memory->read();  // returns: the stream goes on after the abort
  });
  ::unsetenv("HORO_FAKE_NCCL_STUCK");
  EXPECT_THAT(thrown, Each(""));
}

TEST(Nccl, AnErrorOfItsNetworkHasTheRankThatHadItAsTheOrigin) {
  ::setenv("HORO_FAKE_NCCL_ERROR", "3@1", 1);  // of the first one after those that connect
  const auto thrown = run_nccl(3, [](Session& session) {
    const CudaStream stream = make_stream();
    DeviceMemory one(stream, 4'000), two(stream, 4'000);
    const std::array works{submit_sum(session, "one", one, stream), submit_sum(session, "two", two, stream)};
    EXPECT_TRUE(session.wait(works, Clock::now() + 10s));
    try {
      works.back()->outcome();
      ADD_FAILURE() << "the sum has ended without an error";
    } catch (const PeerLost& lost) {
      EXPECT_EQ(lost.origin(), 1);
      throw;
    }
  });
  ::unsetenv("HORO_FAKE_NCCL_ERROR");
  EXPECT_THAT(thrown, Each(AllOf(HasSubstr("rank 1: nccl"), HasSubstr("an error of the fake"))));
}

// In a process of its own, which ends.
// Codecs and the like go by way of the host on all ranks; a model on two devices of a rank is one bucket.
TEST(Nccl, WhatNcclDoesNotTakeHasTheBitsOfTheHostToo) {
  const auto thrown = run_nccl(3, [](Session& session) {
    Call call = call_of(kAllReduce, session, 1'000);
    call.spec.codec = "int8";
    expect_bits_of_host(session, call);
    call = call_of(kAllReduce, session, 500);
    call.spec.name = "adasum";
    call.spec.op = ReduceOp::kAdasum;
    expect_bits_of_host(session, call);
    Call gather = call_of(kAllGather, session, 10 + session.topology().rank);
    gather.spec.name = "gather";
    gather.out_bytes = std::size_t{33} * 12;
    expect_bits_of_host(session, gather);
    call = call_of(kAllReduce, session, 10);
    call.spec.name = "another device";
    EXPECT_EQ(on_device(session, call, 7 - session.topology().rank), on_host(session, call));
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

// The last bytes of a rank may be on the way when it leaves.
TEST(Nccl, ARankThatLeavesAtOnceLeavesTheOthersTheirResults) {
  ::setenv("HORO_FAKE_NCCL_SLOW", "1", 1);
  const auto thrown = run_nccl(3, [](Session& session) {
    const int rank = session.topology().rank;
    const CudaStream stream = make_stream();
    DeviceMemory memory(stream, 4'000);
    memory.write(bytes_of_floats(1'000, 5));
    const auto work = submit_sum(session, "weights", memory, stream);
    EXPECT_TRUE(session.wait_stream(std::span(&work, 1), rank, stream, TimePoint::max()));
    if (rank != 0) return;
    EXPECT_TRUE(session.wait(std::span(&work, 1), Clock::now() + 20s));
    work->outcome();
  });
  ::unsetenv("HORO_FAKE_NCCL_SLOW");
  EXPECT_THAT(thrown, Each(""));
}

// A removed set ends its communicator, and a rebuild those of all sets.
TEST(Nccl, ASetEndsWithWorksOnTheDevice) {
  const auto thrown = run_nccl(3, [](Session& session) {
    const int rank = session.topology().rank;
    const CudaStream stream = make_stream();
    for (int i = 0; i < 3; ++i) {
      const auto added = outcome_of(session, session.add_set({0, 1}, "set " + std::to_string(i))).counts.at(0);
      const auto set = static_cast<std::uint32_t>(added);
      DeviceMemory memory(stream, 4'000);
      if (rank != 2) {
        TensorSpec spec = float_spec("of a set", 1'000);
        spec.set = set;
        spec.device = DeviceType::kCuda;
        Submission submission{0, memory.data(), memory.data()};
        submission.ready = session.record(rank, stream);
        const auto work = session.submit(spec, submission);
        EXPECT_TRUE(session.wait_stream(std::span(&work, 1), rank, stream, TimePoint::max()));
      }
      outcome_of(session, session.remove_set(set));
      meet(session);
    }
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Nccl, BucketsGrowWhileTheDeviceIsBusy) {
  const auto thrown = run_nccl(2, [](Session& session) {
    for (const std::int64_t rows : {10, 100'000, 400'000, 10}) {
      Call call = call_of(kAllReduce, session, rows);
      call.spec.name += " of " + std::to_string(rows);
      expect_bits_of_host(session, call);
    }
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Nccl, NothingIsLeftOfASession) {
  const FakeCudaCounts before = device_counts();
  const auto thrown = run_nccl(2, [](Session& session) {
    for (int i = 0; i < 20; ++i) on_device(session, call_of(kAllReduce, session, 100 + i), session.topology().rank);
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
  const FakeCudaCounts after = device_counts();
  EXPECT_EQ(after.allocated, before.allocated);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.without_device, 0);
}

}  // namespace
}  // namespace horo
