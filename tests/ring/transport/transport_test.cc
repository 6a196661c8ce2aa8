// The contract of Transport over all wires: matching, channels, mismatches, deadlines, aborts and leaving.

#include "ring/transport.h"

#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <latch>
#include <numeric>
#include <thread>

#include "horo/base/error.h"
#include "horo/base/patience.h"
#include "tests/effort.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using Bytes = std::vector<std::byte>;
using Op = Transport::Op;

Bytes filled(std::size_t size, int seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  return bytes;
}

void send(Rank& rank, int peer, const Tag& tag, const Bytes& bytes) {
  const Op op = rank.transport().post_send(peer, tag, bytes);
  rank.transport().wait({&op, 1}, soon());
}

Bytes receive(Rank& rank, int peer, const Tag& tag, std::size_t size) {
  Bytes bytes(size);
  const Op op = rank.transport().post_recv(peer, tag, bytes);
  rank.transport().wait({&op, 1}, soon());
  return bytes;
}

class Transports : public testing::TestWithParam<Wire> {
 protected:
  WorldOptions world(int size) const { return {size, GetParam(), {}}; }
};

INSTANTIATE_TEST_SUITE_P(Wires, Transports,
                         testing::Values(Wire::kInProcess, Wire::kTcp, Wire::kCheckedTcp, Wire::kWideTcp, Wire::kShm,
                                         Wire::kMpi),
                         [](const auto& info) { return name_of(info.param); });

std::chrono::nanoseconds cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// After a pause of the process the deadline counts when the whole time has passed again.
TEST(TcpTransport, AWaitSleepsWhileItsDeadlineInThePastDoesNotCount) {
  constexpr std::chrono::milliseconds kWhole{300};
  std::latch ended(1);
  run_ranks_well({2, Wire::kTcp, {}}, [&](Rank& rank) {
    if (rank.index() == 1) return ended.wait();
    Patience patience(kWhole, kWhole);
    patience.look(Clock::now() - 2 * kWhole);
    EXPECT_TRUE(patience.look(Clock::now()));
    patience.rest();
    Bytes in(1);
    const Op op = rank.transport().post_recv(1, {0, 1, 0, 0}, in);
    const auto before = cpu_time();
    EXPECT_THROW(rank.transport().wait({&op, 1}, Clock::now()), PeerLost);
    EXPECT_LT(cpu_time() - before, kWhole / 6);
    ended.count_down();
  });
}

TEST_P(Transports, MessagesMatchByTagNotByOrder) {
  run_ranks_well(world(2), [](Rank& rank) {
    const std::vector<Tag> tags{{0, 1, 0, 0}, {0, 1, 1, 0}, {0, 2, 0, 0}, {5, 1, 0, 0}};
    std::vector<Bytes> out, in;
    std::vector<Op> ops;
    for (std::size_t i = 0; i < tags.size(); ++i) {
      out.push_back(filled(1000 * i, static_cast<int>(i)));
      in.emplace_back(1000 * i);
    }
    for (std::size_t i = 0; i < tags.size(); ++i)
      ops.push_back(rank.transport().post_send(1 - rank.index(), tags[i], out[i]));
    for (std::size_t i = tags.size(); i-- > 0;)
      ops.push_back(rank.transport().post_recv(1 - rank.index(), tags[i], in[i]));
    rank.transport().wait(ops, soon());
    EXPECT_EQ(in, out);
  });
}

TEST_P(Transports, EqualTagsMatchInTheOrderOfPosting) {
  run_ranks_well(world(2), [](Rank& rank) {
    std::vector<Bytes> out, in(20, Bytes(100));
    std::vector<Op> ops;
    for (int i = 0; i < 20; ++i) out.push_back(filled(100, i));
    for (std::size_t i = 0; i < 20; ++i) {
      ops.push_back(rank.transport().post_send(1 - rank.index(), {}, out[i]));
      ops.push_back(rank.transport().post_recv(1 - rank.index(), {}, in[i]));
    }
    rank.transport().wait(ops, soon());
    EXPECT_EQ(in, out);
  });
}

TEST_P(Transports, LargeMessagesInBothDirectionsDoNotBlockEachOther) {
  run_ranks_well(world(3), [](Rank& rank) {
    const std::size_t size = (kSanitized ? 8 : 20) << 20;  // beyond what sockets buffer
    const Bytes out = filled(size, rank.index());
    std::vector<Bytes> in(3, Bytes(size));
    std::vector<Op> ops;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank.index()) continue;
      ops.push_back(rank.transport().post_send(peer, {}, out));
      ops.push_back(rank.transport().post_recv(peer, {}, in[static_cast<std::size_t>(peer)]));
    }
    rank.transport().wait(ops, soon());
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_TRUE(peer == rank.index() || in[static_cast<std::size_t>(peer)] == filled(size, peer));
    }
  });
}

TEST_P(Transports, TwoThreadsUseTwoChannelsAtOnce) {
  run_ranks_well(world(3), [](Rank& rank) {
    const auto exchange = [&rank](std::uint32_t channel) {
      for (std::uint64_t plan = 0; plan < 200; ++plan) {
        const Tag tag{channel, plan, 0, 0};
        std::vector<Bytes> in(3, Bytes(plan * 37));
        const Bytes out = filled(plan * 37, static_cast<int>(channel));
        std::vector<Op> ops;
        for (int peer = 0; peer < 3; ++peer) {
          if (peer == rank.index()) continue;
          ops.push_back(rank.transport().post_send(peer, tag, out));
          ops.push_back(rank.transport().post_recv(peer, tag, in[static_cast<std::size_t>(peer)]));
        }
        rank.transport().wait(ops, soon());
        for (int peer = 0; peer < 3; ++peer) {
          ASSERT_TRUE(peer == rank.index() || in[static_cast<std::size_t>(peer)] == out);
        }
      }
    };
    std::exception_ptr error;
    {
      std::jthread other([&] {
        try {
          exchange(1);
        } catch (...) {
          error = std::current_exception();
        }
      });
      exchange(2);
    }
    EXPECT_EQ(message_of(error), "");
  });
}

TEST_P(Transports, AnotherKeyHashCancelsThatPlanAloneOnBothSides) {
  const auto errors = run_ranks(world(2), [](Rank& rank) {
    const Tag tag{0, 1, 0, static_cast<std::uint64_t>(rank.index())};
    const Bytes out(100);
    Bytes in(100);
    const std::vector<Op> ops{rank.transport().post_send(1 - rank.index(), tag, out),
                              rank.transport().post_recv(1 - rank.index(), tag, in)};
    EXPECT_THROW(rank.transport().wait(ops, soon()), Mismatch);
    const Bytes next = filled(50, 1);
    const std::vector<Op> more{rank.transport().post_send(1 - rank.index(), {0, 2, 0, 7}, next),
                               rank.transport().post_recv(1 - rank.index(), {0, 2, 0, 7}, in = Bytes(50))};
    rank.transport().wait(more, soon());
    EXPECT_EQ(in, next);
  });
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
}

TEST_P(Transports, AMismatchBetweenTwoRanksReachesTheThirdRankOfThePlan) {
  run_ranks_well(world(3), [](Rank& rank) {
    // Ranks 0 and 1 differ; rank 2 waits for a message that rank 0 never sends.
    const Tag tag{0, 1, 0, rank.index() == 1 ? 9u : 8u};
    Bytes in(8);
    const Bytes out(8);
    std::vector<Op> ops;
    if (rank.index() != 2) ops.push_back(rank.transport().post_send(1 - rank.index(), tag, out));
    if (rank.index() != 2) ops.push_back(rank.transport().post_recv(1 - rank.index(), tag, in));
    if (rank.index() == 0) ops.push_back(rank.transport().post_recv(2, {0, 1, 5, 8}, in));
    if (rank.index() == 2) ops.push_back(rank.transport().post_recv(0, {0, 1, 6, 8}, in));
    EXPECT_THROW(rank.transport().wait(ops, soon()), Mismatch);
  });
}

TEST_P(Transports, AnotherLengthIsAMismatchThatNamesBoth) {
  const auto errors = run_ranks(world(2), [](Rank& rank) {
    if (rank.index() == 0) return send(rank, 1, {0, 3, 0, 0}, Bytes(10));
    receive(rank, 0, {0, 3, 0, 0}, 20);
  });
  EXPECT_NE(message_of(errors[1]).find("sent 10 bytes, expected 20"), std::string::npos) << message_of(errors[1]);
}

TEST_P(Transports, ADeadlineNamesTheRanksTheChannelAndTheSetting) {
  const auto errors = run_ranks(world(3), [](Rank& rank) {
    Bytes in(1);
    if (rank.index() != 0) return static_cast<void>(receive(rank, 0, {}, 1));
    const std::vector<Op> ops{rank.transport().post_recv(1, {4, 5, 0, 0}, in),
                              rank.transport().post_recv(2, {4, 5, 0, 0}, in)};
    rank.transport().wait(ops, Clock::now() + std::chrono::milliseconds(1));
  });
  const std::string why = message_of(errors[0]);
  for (const char* part : {"ranks 1, 2", "channel 4", "plan 5", "HORO_DEADLINE_MS"}) {
    EXPECT_NE(why.find(part), std::string::npos) << why;
  }
}

TEST_P(Transports, AbortReachesEveryRankWithItsOriginAndReason) {
  const auto errors = run_ranks(world(4), [](Rank& rank) {
    if (rank.index() == 2) rank.transport().abort(2, "rank 2 had enough");
    receive(rank, (rank.index() + 1) % 4, {}, 1);
  });
  for (const auto& error : errors) {
    EXPECT_EQ(message_of(error), "rank 2 had enough");
    EXPECT_EQ(origin_of(error), 2);
  }
}

TEST_P(Transports, AbortFromAnotherThreadEndsAWait) {
  const auto errors = run_ranks(world(2), [](Rank& rank) {
    if (rank.index() == 1) return static_cast<void>(receive(rank, 0, {}, 1));
    std::jthread other([&] { rank.transport().abort(0, "stop"); });
    receive(rank, 1, {}, 1);
  });
  EXPECT_EQ(message_of(errors[0]), "stop");
  EXPECT_EQ(message_of(errors[1]), "stop");
}

TEST_P(Transports, AfterAnAbortEveryCallThrowsTheSame) {
  run_ranks_well(world(2), [](Rank& rank) {
    rank.transport().abort(-1, "the end");
    Bytes in(1);
    for (int i = 0; i < 2; ++i) {
      EXPECT_THROW(rank.transport().post_send(1 - rank.index(), {}, in), PeerLost);
      EXPECT_THROW(rank.transport().post_recv(1 - rank.index(), {}, in), PeerLost);
      EXPECT_THROW(rank.transport().wait({}, soon()), PeerLost);
    }
  });
}

TEST_P(Transports, AMessageOfARankThatThenLeavesStillArrives) {
  run_ranks_well(world(2), [](Rank& rank) {
    const Bytes bytes = filled(5 << 20, 3);
    if (rank.index() == 0) return send(rank, 1, {}, bytes);
    EXPECT_TRUE(receive(rank, 0, {}, bytes.size()) == bytes);
  });
}

TEST_P(Transports, WaitingForARankThatHasLeftThrows) {
  const auto errors = run_ranks(world(3), [](Rank& rank) {
    if (rank.index() == 1) return;
    receive(rank, 1, {}, 1);
  });
  EXPECT_EQ(origin_of(errors[0]), 1);
  EXPECT_EQ(origin_of(errors[2]), 1);
}

// A process may end at once after horo.shutdown() without destroying the transport.
TEST(StreamTransport, LeaveSendsTheGoodbyeBeforeTheTransportIsDestroyed) {
  for (const Wire wire : {Wire::kTcp, Wire::kShm, Wire::kMpi}) {
    std::latch left(1), checked(2);
    const auto errors = run_ranks({3, wire, {}}, [&](Rank& rank) {
      if (rank.index() == 1) {
        rank.transport().leave();
        rank.transport().leave();
        left.count_down();
        return checked.wait();
      }
      left.wait();
      const Bytes bytes = filled(100'000, 1);
      const bool arrived = rank.index() == 2 && receive(rank, 0, {}, bytes.size()) == bytes;
      if (rank.index() == 0) send(rank, 2, {}, bytes);
      EXPECT_TRUE(arrived || rank.index() == 0);
      EXPECT_THROW(receive(rank, 1, {}, 1), PeerLost);
      checked.count_down();
    });
    for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
  }
}

class BufferingTransports : public Transports {};

INSTANTIATE_TEST_SUITE_P(Wires, BufferingTransports, testing::Values(Wire::kTcp, Wire::kMpi),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(BufferingTransports, MessagesMayArriveBeforeTheirReceives) {
  run_ranks_well(world(2), [](Rank& rank) {
    const std::vector<Bytes> messages{filled(10, 1), filled(100'000, 2), {}, filled(10, 4)};
    const auto tag = [](std::size_t i) { return Tag{0, 1, static_cast<std::uint32_t>(i == 3 ? 0 : i), 0}; };
    if (rank.index() == 0) {
      for (std::size_t i = 0; i < 4; ++i) send(rank, 1, tag(i), messages[i]);
      return;
    }
    // The fourth message has the tag of the first and is received second of them.
    for (const std::size_t i : {2ul, 0ul, 3ul, 1ul})
      EXPECT_EQ(receive(rank, 0, tag(i), messages[i].size()), messages[i]);
  });
}

TEST_P(BufferingTransports, BeyondMaxEarlyBytesTheSenderWaitsAndNothingIsLost) {
  WorldOptions options = world(2);
  options.config.max_early_bytes = 1000;
  run_ranks_well(options, [](Rank& rank) {
    const int peer = 1 - rank.index();
    std::vector<Bytes> out, in;
    std::vector<Op> sends;
    for (int i = 0; i < 50; ++i) out.push_back(filled(300'000, i));
    for (std::uint32_t i = 0; i < 50; ++i) sends.push_back(rank.transport().post_send(peer, {0, 0, i, 0}, out[i]));
    for (std::uint32_t i = 0; i < 50; ++i) EXPECT_TRUE(receive(rank, peer, {0, 0, i, 0}, 300'000) == out[i]);
    rank.transport().wait(sends, soon());
  });
}

}  // namespace
}  // namespace horo::test
