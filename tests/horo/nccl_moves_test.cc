// Collectives by NCCL that move parts of any size: the bits of the host, with known sizes and with exchanged ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

#include "horo/base/say.h"
#include "ring/cuda/device_loans.h"
#include "tests/horo/device_calls.h"

namespace horo {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using enum CollectiveKind;

std::uint64_t pins() {
  FakeCudaCounts counts{};
  from_fake<decltype(fake_cuda_counts)>("fake_cuda_counts")(&counts);
  return static_cast<std::uint64_t>(counts.pins);
}

std::vector<std::string> run_moves(int ranks, const std::function<void(Session&)>& body) {
  return run_world(ranks, body, on_fake_nccl());
}

std::int64_t sum(const std::vector<std::int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

// A call in which member i has, or gets, rows[i] of three elements. Every member of an all_to_all sends rows[i] to i.
Call call_of_parts(CollectiveKind kind, Session& session, const std::vector<std::int64_t>& rows,
                   DType dtype = DType::kFloat32) {
  const int rank = session.topology().rank, size = session.topology().size, root = size - 1;
  const std::int64_t mine = rows[static_cast<std::size_t>(rank)];
  const bool is_root = rank == root;
  Call call;
  std::int64_t in = mine, out = sum(rows);
  if (kind == kGather && !is_root) out = 0;
  if (kind == kScatter) in = is_root ? sum(rows) : 0, out = mine;
  if (kind == kAllToAll) in = sum(rows), out = size * mine;
  call.spec = spec_of(kind, std::string(name_of(kind)), {in, 3});
  call.spec.dtype = dtype;
  if (kind == kGather || kind == kScatter) call.spec.root = root;
  if (kind == kAllToAll || (kind == kScatter && is_root)) call.splits = rows;
  std::mt19937_64 random(static_cast<std::uint64_t>(rank));
  call.in.resize(call.spec.bytes());
  for (std::byte& byte : call.in) byte = static_cast<std::byte>(random() & 1);
  call.out_bytes = static_cast<std::size_t>(3 * out) * size_of(dtype);
  return call;
}

// The same with sizes that all members know.
Call call_of_known(CollectiveKind kind, Session& session, const std::vector<std::int64_t>& rows) {
  Call call = call_of_parts(kind, session, rows);
  call.spec.counts_known = true;
  if (kind == kAllGather || kind == kGather) call.spec.splits = rows;
  if (kind == kScatter) call.spec.shape[0] = sum(rows);
  if (kind == kScatter) call.in.resize(call.spec.bytes());
  call.splits.clear();
  return call;
}

void expect_moved(Session& session, Call call, const std::string& name) {
  call.spec.name += " " + name;
  EXPECT_EQ(on_device(session, call, session.topology().rank), on_host(session, call)) << describe(call.spec);
}

class NcclMoves : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(NcclMoves, NcclMoves, testing::Values(1, 2, 3, 5, 8));

TEST_P(NcclMoves, PartsOfKnownSizesHaveTheBitsOfTheHost) {
  const std::uint64_t before = pins();
  const auto thrown = run_moves(GetParam(), [](Session& session) {
    const auto size = static_cast<std::size_t>(session.topology().size);
    for (const std::int64_t each : {0, 1, 7, 5'000}) {
      const std::vector<std::int64_t> even(size, each);
      std::vector<std::int64_t> uneven(size, each);
      for (std::size_t i = 0; i < size; ++i) uneven[i] = static_cast<std::int64_t>(i % 3) * each;
      for (const CollectiveKind kind : {kAllGather, kGather, kScatter, kAllToAll}) {
        expect_moved(session, call_of_known(kind, session, even), std::to_string(each));
        if (kind == kScatter || kind == kAllToAll) continue;
        expect_moved(session, call_of_known(kind, session, uneven), std::to_string(each) + " uneven");
      }
    }
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_EQ(pins(), before) << "nothing goes by way of the host";
}

TEST_P(NcclMoves, PartsOfExchangedSizesHaveTheBitsOfTheHost) {
  const std::uint64_t before = pins();
  const auto thrown = run_moves(GetParam(), [](Session& session) {
    for (const std::int64_t each : {0, 1, 2'000}) {
      std::vector<std::int64_t> rows;
      for (int i = 0; i < session.topology().size; ++i) rows.push_back((i + 1) % 3 * each);
      for (const CollectiveKind kind : {kAllGather, kGather, kScatter, kAllToAll}) {
        expect_moved(session, call_of_parts(kind, session, rows), std::to_string(each));
      }
    }
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_EQ(pins(), before);
}

// The result of a call without memory for it, on the device or, if it came there, on the host.
std::vector<std::byte> without_out(Session& session, Call call) {
  const int rank = session.topology().rank;
  call.spec.device = DeviceType::kCuda;
  const CudaStream stream = make_stream();
  DeviceMemory in(stream, call.in.size()), out(stream, call.out_bytes);
  in.write(call.in);
  Submission submission{0, in.data(), nullptr};
  submission.out_bytes = kOutOnDevice;
  submission.splits = call.splits;
  submission.ready = session.record(rank, stream);
  const auto work = session.submit(call.spec, submission);
  EXPECT_TRUE(session.wait_stream(std::span(&work, 1), rank, stream, Clock::now() + std::chrono::seconds(20)));
  const Outcome& outcome = work->outcome();
  EXPECT_EQ(outcome.bytes, call.out_bytes);
  EXPECT_EQ(outcome.data, nullptr) << "it went by way of the host";
  if (outcome.on_device) outcome.on_device->copy_to(out.data(), outcome.bytes, stream);
  return out.read();
}

// Again and again, in the same memory.
TEST(NcclMovesOf, ResultsWithoutMemoryOfTheCallerStayOnTheDevice) {
  const std::uint64_t before = pins();
  const auto thrown = run_nccl(3, [](Session& session) {
    for (const CollectiveKind kind : {kAllGather, kGather, kScatter, kAllToAll}) {
      std::int64_t allocated = 0;
      for (int round = 0; round < 12; ++round) {
        Call call = call_of_parts(kind, session, {std::int64_t{400} * (round % 3), 7, 0});
        call.spec.name += std::to_string(round);
        EXPECT_EQ(without_out(session, call), on_host(session, call)) << describe(call.spec);
        meet(session);
        if (round == 5) allocated = device_counts().allocated;
        meet(session);
      }
      EXPECT_EQ(device_counts().allocated, allocated) << name_of(kind);
      meet(session);
    }
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_EQ(pins(), before) << "nothing goes by way of the host";
}

// A message from this rank to another one, or from that one to this rank, of floats in the memory.
std::shared_ptr<Work> submit_message(Session& session, int from, int to, DeviceMemory& memory, CudaStream stream) {
  const int rank = session.topology().rank;
  TensorSpec spec = spec_of(kSendRecv, say("from ", from, " to ", to), {static_cast<std::int64_t>(memory.bytes() / 4)});
  spec.root = from;
  spec.peer = to;
  spec.device = DeviceType::kCuda;
  Submission submission{0, rank == from ? memory.data() : nullptr, rank == to ? memory.data() : nullptr};
  submission.ready = session.record(rank, stream);
  return session.submit(spec, submission);
}

// All ranks to all others, each in an order of its own, beside sums of all.
TEST(NcclMovesOf, MessagesOfAllPairsArrive) {
  const std::uint64_t before = pins();
  const auto thrown = run_nccl(3, [](Session& session) {
    const int rank = session.topology().rank;
    const CudaStream stream = make_stream();
    for (const std::size_t bytes : {4, 28, 800'000}) {
      std::vector<std::shared_ptr<Work>> works;
      std::vector<std::unique_ptr<DeviceMemory>> sent, received;
      DeviceMemory sum(stream, 4'000);
      for (int i = 1; i <= 2; ++i) {
        const int peer = (rank + (bytes == 28 ? 3 - i : i)) % 3;
        sent.push_back(std::make_unique<DeviceMemory>(stream, bytes));
        received.push_back(std::make_unique<DeviceMemory>(stream, bytes));
        sent.back()->write(bytes_of_floats(
            bytes / 4, std::uint64_t{10} * static_cast<std::uint64_t>(rank) + static_cast<std::uint64_t>(peer)));
        works.push_back(submit_message(session, rank, peer, *sent.back(), stream));
        if (i == 1) works.push_back(submit_sum(session, "sum", sum, stream));
        works.push_back(submit_message(session, peer, rank, *received.back(), stream));
      }
      EXPECT_TRUE(session.wait_stream(works, rank, stream, Clock::now() + std::chrono::seconds(20)));
      for (std::size_t i = 0; i < 2; ++i) {
        const int peer = (rank + static_cast<int>(bytes == 28 ? 2 - i : i + 1)) % 3;
        EXPECT_EQ(received[i]->read(), bytes_of_floats(bytes / 4, static_cast<std::uint64_t>(10 * peer + rank)));
      }
      meet(session);
    }
    EXPECT_EQ(session.counters().collectives(0, kSendRecv).count, 12u);
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_EQ(pins(), before) << "nothing goes by way of the host";
}

// Those of several communicators, one behind the other on the stream.
TEST(NcclMovesOf, MessagesThatNeverEndAreAborted) {
  const FakeCudaCounts before = device_counts();
  ::setenv("HORO_FAKE_NCCL_STUCK", "4", 1);  // the second one after those that connect
  const auto thrown = run_nccl(3, [](Session& session) {
    const int rank = session.topology().rank;
    const CudaStream stream = make_stream();
    DeviceMemory one(stream, 400), two(stream, 400);
    std::vector<std::shared_ptr<Work>> works;
    for (const bool is_stuck : {false, true}) {
      works.clear();
      for (const auto& [from, to] : {std::pair(0, 1), {1, 2}, {0, 2}}) {
        if (rank != from && rank != to) continue;
        works.push_back(submit_message(session, from, to, works.empty() ? one : two, stream));
      }
      EXPECT_TRUE(session.wait_stream(works, rank, stream, Clock::now() + std::chrono::seconds(20))) << is_stuck;
    }
    if (rank == 0) {
      EXPECT_FALSE(session.wait(works, Clock::now() + std::chrono::milliseconds(20))) << "issued, and never done";
      session.abort("the test ends it");
    }
    EXPECT_TRUE(session.wait(works, Clock::now() + std::chrono::seconds(10)));
    works.back()->outcome();
  });
  ::unsetenv("HORO_FAKE_NCCL_STUCK");
  EXPECT_THAT(thrown, Each(HasSubstr("the test ends it")));
  EXPECT_EQ(device_counts().allocated, before.allocated);
  EXPECT_EQ(device_counts().events, before.events);
}

TEST(NcclMovesOf, EveryTypeHasTheBitsOfTheHost) {
  const auto thrown = run_moves(3, [](Session& session) {
    for (int number = 0; number <= 16; ++number) {
      for (const CollectiveKind kind : {kAllGather, kGather, kScatter, kAllToAll}) {
        const DType dtype = *dtype_from(number);
        expect_moved(session, call_of_parts(kind, session, {5, 0, 9}, dtype), std::string(name_of(dtype)));
      }
    }
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

// The input lies at its place in the result, as FSDP2 places it; or both begin at one address.
TEST(NcclMovesOf, MemoryInPlaceHasTheBitsOfTheHost) {
  const auto thrown = run_moves(3, [](Session& session) {
    const int rank = session.topology().rank;
    const CudaStream stream = make_stream();
    for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{4, 4, 4}, {2, 0, 5}}) {
      for (const bool is_at_its_place : {true, false}) {
        Call call = call_of_known(kAllGather, session, rows);
        call.spec.name += std::to_string(rows[0]) + std::to_string(is_at_its_place);
        const std::vector<std::byte> expected = on_host(session, call);
        const std::int64_t before = std::accumulate(rows.begin(), rows.begin() + rank, std::int64_t{0});
        const std::size_t at = is_at_its_place ? static_cast<std::size_t>(before) * 12 : 0;
        DeviceMemory memory(stream, call.out_bytes);
        std::vector<std::byte> values(call.out_bytes);
        std::copy(call.in.begin(), call.in.end(), values.begin() + static_cast<std::ptrdiff_t>(at));
        memory.write(values);
        call.spec.device = DeviceType::kCuda;
        Submission submission{0, static_cast<std::byte*>(memory.data()) + at, memory.data()};
        submission.out_bytes = call.out_bytes;
        submission.ready = session.record(rank, stream);
        outcome_of(session, session.submit(call.spec, submission));
        EXPECT_EQ(memory.read(), expected);
      }
    }
    Call exchange = call_of_known(kAllToAll, session, {3, 3, 3});
    const std::vector<std::byte> expected = on_host(session, exchange);
    exchange.is_in_place = true;
    EXPECT_EQ(on_device(session, exchange, rank), expected);
    Call halves = call_of(kReduceScatter, session, 10);
    halves.spec.splits = {1, 2, 7};
    halves.out_bytes = 12 * static_cast<std::size_t>(halves.spec.splits[static_cast<std::size_t>(rank)]);
    std::vector<std::byte> sums = on_host(session, halves);
    halves.is_in_place = true;
    std::vector<std::byte> found = on_device(session, halves, rank);
    found.resize(sums.size());
    EXPECT_EQ(found, sums);
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

// Many calls of late streams are enqueued one after the other; the caller's stream waits, and not the caller.
TEST(NcclMovesOf, LateStreamsHaveTheirRowsByMember) {
  const std::uint64_t before = pins();
  const auto thrown = run_moves(3, [](Session& session) {
    const int rank = session.topology().rank;
    const CudaStream streams[] = {make_stream(), make_stream()};
    std::vector<std::unique_ptr<DeviceMemory>> ins, outs;
    std::vector<std::shared_ptr<Work>> works;
    std::vector<std::vector<std::byte>> expected;
    for (std::size_t i = 0; i < 20; ++i) {
      const CudaStream stream = streams[i % 2];
      const CollectiveKind kind = i % 3 == 0 ? kAllToAll : kAllGather;
      Call call = i % 4 < 2 ? call_of_known(kind, session, {500, 500, 500}) : call_of_parts(kind, session, {9, 400, 0});
      call.spec.name += std::to_string(i);
      expected.push_back(on_host(session, call));
      ins.push_back(std::make_unique<DeviceMemory>(stream, call.in.size()));
      outs.push_back(std::make_unique<DeviceMemory>(stream, call.out_bytes));
      ins.back()->write(call.in);
      call.spec.device = DeviceType::kCuda;
      Submission submission{0, ins.back()->data(), outs.back()->data()};
      submission.out_bytes = call.out_bytes;
      submission.splits = call.splits;
      submission.ready = session.record(rank, stream);
      works.push_back(session.submit(call.spec, submission));
    }
    for (const CudaStream stream : streams) EXPECT_TRUE(session.wait_stream(works, rank, stream, TimePoint::max()));
    EXPECT_THAT(works[3]->outcome().counts, testing::SizeIs(3));
    EXPECT_THAT(works[7]->outcome().counts, ElementsAre(9, 400, 0)) << "before the device is done";
    for (std::size_t i = 0; i < works.size(); ++i) EXPECT_EQ(outs[i]->read(), expected[i]) << i;
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_EQ(pins(), before);
}

// One rank gives too little memory, or none: its call fails, or has the result on the host; the others go on.
TEST(NcclMovesOf, RanksWithoutRoomLeaveTheOthersTheirResults) {
  const auto thrown = run_moves(3, [](Session& session) {
    const int rank = session.topology().rank;
    const CudaStream stream = make_stream();
    for (const bool is_known : {true, false}) {
      for (const std::size_t room : {0, 5}) {
        Call call =
            is_known ? call_of_known(kAllGather, session, {2, 3, 4}) : call_of_parts(kAllGather, session, {2, 3, 4});
        call.spec.name += std::to_string(is_known) + std::to_string(room);
        const std::vector<std::byte> expected = on_host(session, call);
        DeviceMemory in(stream, call.in.size()), out(stream, call.out_bytes);
        in.write(call.in);
        call.spec.device = DeviceType::kCuda;
        Submission submission{0, in.data(), rank == 1 && room == 0 ? nullptr : out.data()};
        submission.out_bytes = rank == 1 ? room : call.out_bytes;
        submission.ready = session.record(rank, stream);
        const auto work = session.submit(call.spec, submission);
        if (rank == 1 && room > 0) {
          EXPECT_THAT(thrown_by([&] { outcome_of(session, work); }), HasSubstr("has 108 bytes, out has room for 5"));
        } else if (rank == 1) {
          const Outcome& outcome = outcome_of(session, work);
          EXPECT_EQ(std::vector(outcome.data.get(), outcome.data.get() + outcome.bytes), expected);
        } else {
          outcome_of(session, work);
          EXPECT_EQ(out.read(), expected);
        }
      }
    }
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(NcclMovesOf, RanksOnAnotherDeviceHaveTheBitsOfTheHost) {
  const auto thrown = run_moves(3, [](Session& session) {
    expect_moved(session, call_of_known(kAllGather, session, {2, 2, 2}), "first");
    for (const CollectiveKind kind : {kAllGather, kGather, kScatter, kAllToAll}) {
      Call call = call_of_parts(kind, session, {4, 0, 3});
      EXPECT_EQ(on_device(session, call, 7 - session.topology().rank), on_host(session, call)) << describe(call.spec);
    }
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

}  // namespace
}  // namespace horo
