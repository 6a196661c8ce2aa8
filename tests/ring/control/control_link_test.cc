// The contract of ControlLink, over all wires.

#include "ring/control_link.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using EventKind = ControlEvent::Kind;
using Bytes = std::vector<std::byte>;

Bytes text(const std::string& characters) {
  const auto bytes = std::as_bytes(std::span(characters));
  return {bytes.begin(), bytes.end()};
}

// The next events, one at a time, without heartbeats that request no answer.
class Events {
 public:
  explicit Events(ControlLink& link) : link_(link) {}
  ControlEvent next() {
    for (const TimePoint until = soon(); waiting_.empty() && Clock::now() < until;) {
      waiting_ = link_.wait(until);
      std::erase_if(waiting_, [](const ControlEvent& e) { return e.kind == EventKind::kBeat && !e.wants_answer; });
    }
    if (waiting_.empty()) throw std::runtime_error("no event arrived");
    ControlEvent event = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    return event;
  }

 private:
  ControlLink& link_;
  std::vector<ControlEvent> waiting_;
};

void leave_after_rank_1(Rank& rank) {
  EXPECT_EQ(Events(rank.control()).next().kind, EventKind::kLeft);
  rank.control().goodbye(std::chrono::seconds(5));
}

class ControlLinks : public testing::TestWithParam<Wire> {
 protected:
  WorldOptions world(int size) const { return {size, GetParam(), {}}; }
};

INSTANTIATE_TEST_SUITE_P(Wires, ControlLinks, testing::Values(Wire::kInProcess, Wire::kTcp, Wire::kShm),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(ControlLinks, MessagesArriveInOrderAndUnchanged) {
  run_ranks_well(world(3), [](Rank& rank) {
    Events events(rank.control());
    const auto message = [](int from, std::size_t i) {
      return Bytes(i * i * 300, static_cast<std::byte>(from * 16 + static_cast<int>(i)));
    };
    for (std::size_t i = 0; i < 30; ++i) {
      for (int to = 0; to < 3; ++to) {
        if (to != rank.index() && (to == 0 || rank.index() == 0)) rank.control().send(to, message(rank.index(), i));
      }
    }
    std::vector<std::size_t> seen(3);
    for (int left = rank.index() == 0 ? 60 : 30; left > 0;) {
      const ControlEvent event = events.next();
      if (event.kind == EventKind::kLeft) continue;
      ASSERT_EQ(event.bytes, message(event.from, seen[static_cast<std::size_t>(event.from)]++));
      --left;
    }
    rank.control().goodbye(std::chrono::seconds(5));
  });
}

TEST_P(ControlLinks, LargeMessagesCrossWithoutWaitingForEachOther) {
  run_ranks_well(world(2), [](Rank& rank) {
    const Bytes large(8 << 20, std::byte{7});
    Events events(rank.control());
    rank.control().send(1 - rank.index(), large);
    EXPECT_TRUE(events.next().bytes == large);
    rank.control().send(1 - rank.index(), text("got it"));
    EXPECT_EQ(events.next().bytes, text("got it"));
  });
}

TEST_P(ControlLinks, WakeEndsAWaitAndIsNotLost) {
  run_ranks_well(world(2), [](Rank& rank) {
    if (rank.index() == 0) return leave_after_rank_1(rank);
    rank.control().wake();
    EXPECT_TRUE(rank.control().wait(TimePoint::max()).empty());
    std::jthread other([&] { rank.control().wake(); });
    EXPECT_TRUE(rank.control().wait(TimePoint::max()).empty());
    rank.control().goodbye(std::chrono::seconds(5));
  });
}

TEST_P(ControlLinks, WaitReturnsAtItsDeadline) {
  run_ranks_well(world(2), [](Rank& rank) {
    if (rank.index() == 0) return leave_after_rank_1(rank);
    const TimePoint until = Clock::now() + std::chrono::milliseconds(20);
    while (Clock::now() < until) EXPECT_TRUE(rank.control().wait(until).empty());
    rank.control().goodbye(std::chrono::seconds(5));
  });
}

// Every rank calls wait() until rank 0 has left.
TEST_P(ControlLinks, EveryRankAnswersABeat) {
  run_ranks_well(world(3), [](Rank& rank) {
    if (rank.index() != 0) {
      Events events(rank.control());
      const ControlEvent asked = events.next();
      EXPECT_EQ(asked.kind, EventKind::kBeat);
      EXPECT_TRUE(asked.wants_answer);
      while (events.next().kind != EventKind::kLeft) {
      }
      return;
    }
    rank.control().beat(true);
    std::vector<bool> answered(3);
    for (const TimePoint until = soon(); !(answered[1] && answered[2]) && Clock::now() < until;) {
      for (const ControlEvent& event : rank.control().wait(until)) {
        if (event.kind == EventKind::kBeat) answered[static_cast<std::size_t>(event.from)] = true;
      }
    }
    EXPECT_TRUE(answered[1] && answered[2]);
    rank.control().goodbye(std::chrono::seconds(5));
  });
}

TEST_P(ControlLinks, ASuspicionReachesRankZeroUnchanged) {
  run_ranks_well(world(3), [](Rank& rank) {
    Events events(rank.control());
    if (rank.index() == 1) rank.control().suspect(2, Evidence::kGone, "its process has ended");
    if (rank.index() == 0) {
      const ControlEvent event = events.next();
      EXPECT_EQ(event.kind, EventKind::kSuspicion);
      EXPECT_EQ(event.from, 1);
      EXPECT_EQ(event.about, 2);
      EXPECT_EQ(event.evidence, Evidence::kGone);
      EXPECT_EQ(event.reason, "its process has ended");
      return rank.control().goodbye(std::chrono::seconds(5));
    }
    EXPECT_EQ(events.next().kind, EventKind::kLeft);
    rank.control().goodbye(std::chrono::seconds(5));
  });
}

TEST_P(ControlLinks, TheLastMessageBeforeAGoodbyeArrives) {
  run_ranks_well(world(3), [](Rank& rank) {
    Events events(rank.control());
    if (rank.index() != 0) {
      rank.control().send(0, text("last message"));
      return rank.control().goodbye(std::chrono::seconds(5));
    }
    int messages = 0, left = 0;
    while (left < 2) {
      const ControlEvent event = events.next();
      ASSERT_NE(event.kind, EventKind::kLost);
      ++(event.kind == EventKind::kMessage ? messages : left);
    }
    EXPECT_EQ(messages, 2);
  });
}

TEST_P(ControlLinks, EveryRankGetsTheLossOfARank) {
  run_ranks_well(world(4), [](Rank& rank) {
    if (rank.index() == 2) return rank.links.control.reset();
    Events events(rank.control());
    const ControlEvent event = events.next();
    EXPECT_EQ(event.kind, EventKind::kLost);
    EXPECT_EQ(event.from, 2);
    EXPECT_NE(event.reason.find("rank 2"), std::string::npos);
    // Every rank stays until rank 0 has forwarded the loss to all.
    rank.control().goodbye(std::chrono::seconds(5));
  });
}

TEST_P(ControlLinks, EveryRankGetsTheLossOfRankZero) {
  run_ranks_well(world(3), [](Rank& rank) {
    if (rank.index() == 0) return rank.links.control.reset();
    const ControlEvent event = Events(rank.control()).next();
    EXPECT_EQ(event.kind, EventKind::kLost);
    EXPECT_EQ(event.from, 0);
  });
}

TEST_P(ControlLinks, AnAbortReachesEveryRankOnceWithOriginAndReason) {
  for (const int origin : {0, 2}) {
    run_ranks_well(world(4), [origin](Rank& rank) {
      if (rank.index() == origin) return rank.control().abort(origin, "a tensor went wrong");
      const ControlEvent event = Events(rank.control()).next();
      EXPECT_EQ(event.kind, EventKind::kLost);
      EXPECT_EQ(event.from, origin);
      EXPECT_EQ(event.reason, "a tensor went wrong");
      for (const ControlEvent& later : rank.control().wait(Clock::now())) EXPECT_NE(later.kind, EventKind::kLost);
    });
  }
}

TEST_P(ControlLinks, AbortMayBeCalledByAnyThread) {
  run_ranks_well(world(2), [](Rank& rank) {
    if (rank.index() == 0) {
      std::jthread other([&] { rank.control().abort(0, "from another thread"); });
      for (int i = 0; i < 50; ++i) rank.control().send(1, Bytes(100'000));
      return;
    }
    Events events(rank.control());
    ControlEvent event = events.next();
    while (event.kind == EventKind::kMessage) event = events.next();
    EXPECT_EQ(event.reason, "from another thread");
  });
}

TEST(StreamControl, AMessageOverTheLimitIsRefusedByName) {
  run_ranks_well({2, Wire::kTcp, {}}, [](Rank& rank) {
    try {
      rank.control().send(1 - rank.index(), Bytes(rank.config.max_message_bytes + 1));
      ADD_FAILURE() << "sent";
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find("HORO_MAX_MESSAGE_BYTES"), std::string::npos);
    }
    rank.control().goodbye(std::chrono::seconds(5));
  });
}

TEST(StreamControl, APeerThatExceedsTheLimitIsLostByName) {
  const std::string addr = free_address();
  std::vector<std::function<void()>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back([&addr, rank] {
      Config config = config_of(rank, 2, addr);
      if (rank == 0) config.max_message_bytes = 10'000;
      const Links links = connect_tcp(config, 0, make_tcp_exchange(config, 0));
      if (rank == 1) return links.control->send(0, Bytes(10'001)), links.control->goodbye(std::chrono::seconds(5));
      const ControlEvent event = Events(*links.control).next();
      EXPECT_EQ(event.kind, EventKind::kLost);
      EXPECT_EQ(event.from, 1);
      EXPECT_NE(event.reason.find("HORO_MAX_MESSAGE_BYTES"), std::string::npos) << event.reason;
    });
  }
  for (const auto& error : run_threads(ranks)) EXPECT_EQ(message_of(error), "");
}

}  // namespace
}  // namespace horo::test
