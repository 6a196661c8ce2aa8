// Collectives that a group refuses, and its failures.

#include "ring/group.h"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <thread>

#include "horo/base/error.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using Bytes = std::vector<std::byte>;

Collective all_reduce_of(Bytes& data, int size) {
  Collective c;
  c.in = c.out = {data.data(), data.size()};
  c.counts = {data.size() / 4};
  for (int i = 0; i < size; ++i) c.contributors.push_back(i);
  c.deadline = soon();
  c.what = "gradient fc.weight";
  return c;
}

TEST(Group, ACollectiveThatContradictsItselfIsRefusedBeforeAnythingIsSent) {
  run_ranks_well({2, Wire::kInProcess, {}}, [](Rank& rank) {
    Bytes data(400), more(400);
    const std::vector<std::function<void(Collective&)>> mistakes{
        [](Collective& c) {
          c.counts = {50, 50};
        },
        [](Collective& c) { c.counts = {101}; },
        [](Collective& c) { c.counts = {SIZE_MAX / 2}; },
        [](Collective& c) { c.contributors = {0}; },
        [](Collective& c) {
          c.contributors = {1, 0};
        },
        [](Collective& c) {
          c.contributors = {1, 1};
        },
        [](Collective& c) {
          c.contributors = {-2, 1};
        },
        [](Collective& c) { c.out.data += 4, c.out.bytes -= 4, c.counts = {99}; },
        [](Collective& c) { c.in.data = nullptr; },
        [](Collective& c) { c.in.device = 0; },
        [](Collective& c) { c.dtype = DType::kBool, c.op = ReduceOp::kAverage; },
        [](Collective& c) { c.op = ReduceOp::kAverage, c.divisor = 0; },
        [](Collective& c) { c.kind = CollectiveKind::kBroadcast, c.root = 2; },
        [](Collective& c) { c.kind = CollectiveKind::kBroadcast, c.root = -1; },
        [](Collective& c) { c.kind = CollectiveKind::kAllGather; },
        [&](Collective& c) {
          c.kind = CollectiveKind::kAllGather, c.counts = {100, 100}, c.out = {more.data(), 400};
        },
        [](Collective& c) {
          c.kind = CollectiveKind::kReduceScatter, c.counts = {100, 1};
        }};
    for (std::size_t i = 0; i < mistakes.size(); ++i) {
      Collective c = all_reduce_of(data, 2);
      mistakes[i](c);
      try {
        rank.group->run(c);
        ADD_FAILURE() << "accepted mistake " << i;
      } catch (const std::invalid_argument& error) {
        EXPECT_NE(std::string(error.what()).find("gradient fc.weight"), std::string::npos) << error.what();
      }
    }
    EXPECT_EQ(rank.transport().traffic(0).frames_sent, 0u);
  });
}

TEST(Group, ItsMembersAreAscendingAndOneOfThemIsThisRank) {
  run_ranks_well({3, Wire::kInProcess, {}}, [](Rank& rank) {
    for (const std::vector<int>& members : {std::vector<int>{(rank.index() + 1) % 3}, {2, 1, 0}, {0, 1, 1, 2}, {}}) {
      EXPECT_THROW(make_transport_group(rank.links, {members, 0}, rank.config, rank.counters), std::invalid_argument);
    }
  });
}

TEST(Group, AGroupOfSomeRanksLeavesTheOthersAlone) {
  run_ranks_well({4, Wire::kTcp, {}}, [](Rank& rank) {
    if (rank.index() % 2 == 0) return;
    const auto odd = make_transport_group(rank.links, {{1, 3}, 5}, rank.config, rank.counters);
    std::vector<float> data(100, static_cast<float>(rank.index()));
    Bytes bytes(400);
    std::memcpy(bytes.data(), data.data(), 400);
    odd->run(all_reduce_of(bytes, 2));
    std::memcpy(data.data(), bytes.data(), 400);
    EXPECT_EQ(data, std::vector<float>(100, 4.f));
    EXPECT_EQ(rank.counters.collectives(5, CollectiveKind::kAllReduce).count, 1u);
  });
}

TEST(Group, TheRingAddsInAnotherOrderThanTheTree) {
  WorldOptions options{4, Wire::kInProcess, {}};
  options.config.algorithms = "all_reduce=ring";  // taken for order="fast" only
  run_ranks_well(options, [](Rank& rank) {
    // (1 + -1) + (tiny + 0) keeps tiny; ((tiny + 0) + 1) + -1, as the ring adds for its third shard, loses it.
    const float values[] = {1.f, -1.f, 1e-9f, 0.f};
    std::vector<Bytes> results;
    for (const Order order : {Order::kCanonical, Order::kFast}) {
      std::vector<float> data(8, values[rank.index()]);
      Bytes bytes(32);
      std::memcpy(bytes.data(), data.data(), 32);
      Collective c = all_reduce_of(bytes, 4);
      c.order = order;
      c.plan = static_cast<std::uint64_t>(order);
      rank.group->run(c);
      results.push_back(bytes);
      EXPECT_EQ(rank.group->algorithm(c), order == Order::kFast ? "ring" : "one-shot");
    }
    EXPECT_NE(results[0], results[1]);
  });
}

TEST(Group, TwoGroupsOnTwoChannelsRunAtOnce) {
  for (const Wire wire : {Wire::kInProcess, Wire::kTcp, Wire::kShm, Wire::kMpi}) {
    run_ranks_well({3, wire, {}}, [](Rank& rank) {
      const auto work = [&rank](std::uint32_t channel) {
        for (std::uint64_t plan = 0; plan < 20; ++plan) {
          std::vector<float> data(30'000, 1.f + static_cast<float>(channel));
          Bytes bytes(data.size() * 4);
          std::memcpy(bytes.data(), data.data(), bytes.size());
          Collective c = all_reduce_of(bytes, 3);
          c.channel = channel;
          c.plan = plan;
          rank.group->run(c);
          std::memcpy(data.data(), bytes.data(), bytes.size());
          ASSERT_EQ(data, std::vector<float>(30'000, 3.f + 3.f * static_cast<float>(channel)));
        }
      };
      std::jthread other([&] { work(1); });
      work(2);
    });
  }
}

// A transport that fails after some messages, as if this rank's process had died.
class DyingTransport final : public Transport {
 public:
  DyingTransport(Transport& inner, int allowed) : inner_(inner), allowed_(allowed) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Op post_send(int peer, const Tag& tag, std::span<const std::byte> out) override {
    if (allowed_-- <= 0) throw std::runtime_error("died");
    return inner_.post_send(peer, tag, out);
  }
  Op post_recv(int peer, const Tag& tag, std::span<std::byte> in) override { return inner_.post_recv(peer, tag, in); }
  void wait(std::span<const Op> ops, TimePoint deadline) override { inner_.wait(ops, deadline); }
  void abort(int origin, const std::string& reason) noexcept override { inner_.abort(origin, reason); }
  Traffic traffic(std::uint32_t channel) const override { return inner_.traffic(channel); }
  std::uint64_t kernel_bytes_sent_to(int peer) const override { return inner_.kernel_bytes_sent_to(peer); }

 private:
  Transport& inner_;
  int allowed_;
};

TEST(Group, ADeadRankFailsAllOthersAndNoneHangs) {
  for (const Wire wire : {Wire::kInProcess, Wire::kTcp, Wire::kShm, Wire::kMpi}) {
    for (const Order order : {Order::kCanonical, Order::kFast}) {
      for (int allowed = 0; allowed < 4; ++allowed) {  // no rank can finish without the next message
        WorldOptions options{4, wire, {}};
        options.config.algorithms = order == Order::kFast ? "all_reduce=ring" : "all_reduce=direct";
        const auto errors = run_ranks(options, [&](Rank& rank) {
          Bytes data(8000);
          Collective c = all_reduce_of(data, 4);
          c.order = order;
          DyingTransport dying(rank.transport(), allowed);
          Counters counters;
          const auto group = make_transport_group(dying, {{0, 1, 2, 3}, 0}, rank.config, counters);
          (rank.index() == 2 ? *group : *rank.group).run(c);
        });
        for (const int survivor : {0, 1, 3})
          EXPECT_EQ(origin_of(errors[static_cast<std::size_t>(survivor)]), 2) << allowed;
      }
    }
  }
}

TEST(Group, ALateRankIsNamedWithTheTensor) {
  const auto errors = run_ranks({2, Wire::kInProcess, {}}, [](Rank& rank) {
    if (rank.index() == 1) {
      EXPECT_EQ(rank.control().wait(soon()).at(0).kind, ControlEvent::Kind::kLeft);
      return;
    }
    Bytes data(400);
    Collective collective = all_reduce_of(data, 2);
    collective.deadline = Clock::now();
    try {
      rank.group->run(collective);
    } catch (const PeerLost& lost) {
      EXPECT_EQ(lost.evidence(), Evidence::kLate);
      rank.control().goodbye(std::chrono::seconds(5));
      throw;
    }
  });
  EXPECT_EQ(origin_of(errors[0]), 1);
  EXPECT_NE(message_of(errors[0]).find("in all_reduce of gradient fc.weight"), std::string::npos)
      << message_of(errors[0]);
}

TEST(Group, AMismatchEndsThatCollectiveOnEveryMemberAndNoOther) {
  for (const Wire wire : {Wire::kInProcess, Wire::kTcp, Wire::kShm, Wire::kMpi}) {
    for (const Order order : {Order::kCanonical, Order::kFast}) {
      run_ranks_well({4, wire, {}}, [&](Rank& rank) {
        Bytes data(1 << 20);
        Collective c = all_reduce_of(data, 4);
        c.order = order;
        c.key_hash = rank.index() == 3 ? 1 : 2;
        EXPECT_THROW(rank.group->run(c), Mismatch);
        c.key_hash = 7;
        c.plan = 1;
        rank.group->run(c);
      });
    }
  }
}

TEST(Group, AllocationsAreAligned) {
  run_ranks_well({1, Wire::kInProcess, {}}, [](Rank& rank) {
    const Allocation small = rank.group->allocate(10), large = rank.group->allocate(5 << 20),
                     none = rank.group->allocate(0);
    for (const auto* one : {&small, &large, &none})
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one->data.get()) % 64, 0u);
    std::memset(large.data.get(), 1, large.bytes);
  });
}

}  // namespace
}  // namespace horo::test
