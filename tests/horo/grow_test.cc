// Growth of an elastic job: what the sessions of the ranks and of those that join do. The test is the guard.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "elastic/messages.h"
#include "elastic/packets.h"
#include "horo/base/error.h"
#include "ring/shm/segment.h"
#include "tests/horo/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The guard's ends of the sockets to its processes.
class ScriptedGuard {
 public:
  // Returns the process's end.
  int add(MemberId id) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()) != 0) std::abort();
    sockets_[id] = ends[0];
    return ends[1];
  }
  ~ScriptedGuard() {
    for (const auto& [id, fd] : sockets_) ::close(fd);
  }
  // The next message of this kind; others are left out.
  template <class Message>
  Message receive(MemberId id) {
    PacketJoiner joiner;
    std::vector<std::byte> bytes(kMaxPacket + 1);
    while (true) {
      const ssize_t got = ::recv(sockets_.at(id), bytes.data(), bytes.size(), 0);
      if (got <= 0) throw std::runtime_error("process " + std::to_string(id) + " has ended");
      if (got == 1) continue;  // the owner page
      const auto whole = joiner.take(std::span(bytes).first(static_cast<std::size_t>(got)));
      if (!whole) continue;
      const MemberMessage message = decode_member_message(*whole);
      if (const auto* found = std::get_if<Message>(&message)) return *found;
    }
  }
  void send(MemberId id, const GuardMessage& message) {
    for (const auto& packet : packets_of(encode(message))) ::send(sockets_.at(id), packet.data(), packet.size(), 0);
  }
  // Begins an epoch of these members: those that are frozen, and those that join.
  View view_of(std::uint32_t epoch, const std::map<MemberId, Frozen>& frozen, const std::map<MemberId, Ready>& ready) {
    View view;
    view.epoch = epoch;
    view.secret.fill(static_cast<std::byte>(epoch));
    view.reason = "ranks join";
    view.at_border = true;
    for (const auto& [id, message] : frozen) {
      view.members.push_back(id);
      view.progress[id] = message.progress;
      view.cards[id] = message.card;
      view.at_border = view.at_border && message.at_border;
      if (!ready.empty()) view.sets = message.sets;
    }
    for (const auto& [id, message] : ready) {
      view.members.push_back(id);
      view.cards[id] = message.card;
      view.joined.push_back(id);
    }
    return view;
  }
  void begin(const View& view) {
    for (const MemberId id : view.members) send(id, view);
    for (const MemberId id : view.members) EXPECT_EQ(receive<Installed>(id).epoch, view.epoch);
  }

 private:
  std::map<MemberId, int> sockets_;
};

using Body = std::function<void(Session&)>;

class Grow : public testing::Test {
 protected:
  // Runs the body on `size` ranks, and `guard` beside them. A process joins with join().
  void run(int size, const Body& body, const std::function<void()>& guard) {
    std::vector<std::function<void()>> threads;
    const std::string addr = test::free_address();
    for (int rank = 0; rank < size; ++rank) {
      Config config = test::config_of(rank, size, addr);
      config.min_np = 1;
      config.transport = transport_;
      config.guard_fd = guard_.add(static_cast<MemberId>(rank));
      threads.push_back([config, &body] {
        Session session(config);
        body(session);
      });
    }
    threads.push_back([&, size] {
      for (int rank = 0; rank < size; ++rank) guard_.receive<Installed>(static_cast<MemberId>(rank));
      guard();
    });
    for (const auto& error : test::run_threads(threads)) EXPECT_EQ(test::message_of(error), "");
    for (std::future<void>& one : joiners_) EXPECT_NO_THROW(one.get());
  }
  // Starts a process that joins, and waits until it is ready.
  Ready join(MemberId id, const Body& body) {
    Config config = test::config_of(static_cast<int>(id), static_cast<int>(id) + 1, "");
    config.min_np = 1;
    config.joins = true;
    config.transport = transport_;
    config.guard_fd = guard_.add(id);
    joiners_.push_back(std::async(std::launch::async, [config, body] {
      Session session(config, JoinTerms{"model=a\n"});
      body(session);
    }));
    return guard_.receive<Ready>(id);
  }
  std::map<MemberId, Frozen> frozen_of(int size) {
    std::map<MemberId, Frozen> frozen;
    for (int rank = 0; rank < size; ++rank) {
      const auto id = static_cast<MemberId>(rank);
      frozen[id] = guard_.receive<Frozen>(id);
    }
    return frozen;
  }

  ScriptedGuard guard_;
  std::string transport_ = "tcp";
  std::vector<std::future<void>> joiners_;
};

TensorSpec named(const std::string& name, CollectiveKind kind = CollectiveKind::kAllReduce) {
  TensorSpec spec;
  spec.kind = kind;
  spec.name = name;
  spec.once = name.empty();
  spec.op = ReduceOp::kSum;
  spec.shape = {1};
  return spec;
}

float sum(Session& session, const std::string& name, float value) {
  session.run(named(name), &value, &value);
  return value;
}

std::int64_t grow(Session& session) {
  return outcome_of(session, session.grow()).counts.at(0);
}

TEST_F(Grow, ARankThatJoinsHasTheNextNumberAndTakesPart) {
  run(
      3,
      [](Session& session) {
        EXPECT_EQ(sum(session, "before", 1), 3);
        EXPECT_EQ(grow(session), 1);
        EXPECT_EQ(session.topology().size, 4);
        EXPECT_THAT(session.members(), ElementsAre(0, 1, 2, 3));
        EXPECT_EQ(sum(session, "after", 1), 4);
        EXPECT_EQ(sum(session, "", 1), 4);
      },
      [&] {
        const Ready ready = join(3, [](Session& session) {
          EXPECT_EQ(session.topology().rank, 3);
          EXPECT_EQ(session.topology().epoch, 1U);
          EXPECT_EQ(sum(session, "after", 1), 4);
          EXPECT_EQ(sum(session, "", 1), 4);
        });
        EXPECT_THAT(ready.terms, HasSubstr("HORO_BUCKET_BYTES="));
        EXPECT_THAT(ready.terms, HasSubstr("model=a\n"));
        const auto frozen = frozen_of(3);
        for (const auto& [id, message] : frozen) EXPECT_TRUE(message.at_border);
        guard_.begin(guard_.view_of(1, frozen, {{3, ready}}));
      });
}

TEST_F(Grow, ARankThatJoinsHasTheProcessSetsAndTheNumbersOfUnnamedCalls) {
  run(
      3,
      [](Session& session) {
        const auto evens = static_cast<std::uint32_t>(outcome_of(session, session.add_set({0, 2}, "evens")).counts[0]);
        const auto gone = static_cast<std::uint32_t>(outcome_of(session, session.add_set({0, 1})).counts[0]);
        outcome_of(session, session.remove_set(gone));
        for (int call = 0; call < 5; ++call) sum(session, "", 1);
        grow(session);
        EXPECT_THAT(session.set_info(evens).ranks, ElementsAre(0, 2));
        EXPECT_EQ(sum(session, "", 1), 4);
        EXPECT_EQ(outcome_of(session, session.add_set({1, 3}, "odds")).counts[0], 3);
      },
      [&] {
        const Ready ready = join(3, [](Session& session) {
          EXPECT_THAT(session.set_info(1).ranks, ElementsAre(0, 2));
          EXPECT_EQ(session.set_info(1).name, "evens");
          EXPECT_EQ(session.set_info(1).rank, -1);
          EXPECT_THROW(session.set_info(2), std::invalid_argument);
          EXPECT_EQ(sum(session, "", 1), 4);
          EXPECT_EQ(outcome_of(session, session.add_set({1, 3}, "odds")).counts[0], 3);
        });
        guard_.begin(guard_.view_of(1, frozen_of(3), {{3, ready}}));
      });
}

// As the call of another thread: on some ranks before the border, on others after it.
TEST_F(Grow, ACallThatIsInFlightAtTheBorderRunsWithTheRankThatJoins) {
  run(
      3,
      [](Session& session) {
        const bool is_early = session.topology().rank == 1;
        float value = 1;
        std::shared_ptr<Work> work;
        if (is_early) work = session.submit(named(""), &value, &value);
        grow(session);
        if (!is_early) work = session.submit(named(""), &value, &value);
        outcome_of(session, work);
        EXPECT_EQ(value, 4);
      },
      [&] {
        const Ready ready = join(3, [](Session& session) { EXPECT_EQ(sum(session, "", 1), 4); });
        guard_.begin(guard_.view_of(1, frozen_of(3), {{3, ready}}));
      });
}

TEST_F(Grow, ACallWhoseMeaningDependsOnTheSizeFailsIfItIsInFlightAtTheBorder) {
  run(
      2,
      [](Session& session) {
        std::array<float, 2> parts{1, 1};
        TensorSpec spec = named("parts", CollectiveKind::kReduceScatter);
        spec.shape = {2};
        std::shared_ptr<Work> work;
        float mine = 0;
        if (session.topology().rank == 0) work = session.submit(spec, parts.data(), &mine);
        grow(session);
        if (session.topology().rank == 0) {
          EXPECT_THROW(outcome_of(session, work), PeerLost);
        }
        EXPECT_EQ(sum(session, "after", 1), 3);
      },
      [&] {
        const Ready ready = join(2, [](Session& session) { EXPECT_EQ(sum(session, "after", 1), 3); });
        guard_.begin(guard_.view_of(1, frozen_of(2), {{2, ready}}));
      });
}

TEST_F(Grow, TheRequestRunsAgainIfARankWasNotAtTheBorder) {
  run(
      2,
      [](Session& session) {
        EXPECT_EQ(grow(session), 2);
        EXPECT_EQ(session.topology().size, 3);
        EXPECT_EQ(sum(session, "after", 1), 3);
      },
      [&] {
        const Ready ready = join(2, [](Session& session) { EXPECT_EQ(sum(session, "after", 1), 3); });
        auto frozen = frozen_of(2);
        frozen[1].at_border = false;  // as if it had seen a death before
        guard_.begin(guard_.view_of(1, frozen, {}));
        guard_.begin(guard_.view_of(2, frozen_of(2), {{2, ready}}));
      });
}

TEST_F(Grow, TheRequestIsDoneIfNoneHasJoined) {
  run(
      2,
      [](Session& session) {
        EXPECT_EQ(grow(session), 1);
        EXPECT_EQ(sum(session, "after", 1), 2);
      },
      [&] { guard_.begin(guard_.view_of(1, frozen_of(2), {})); });
}

TEST_F(Grow, OneRankBecomesThreeAndTheyMayGrowAgain) {
  const Body joined = [](Session& session) {
    EXPECT_EQ(sum(session, "a", 1), 3);
    EXPECT_EQ(grow(session), 2);
    EXPECT_EQ(sum(session, "b", 1), 4);
  };
  run(
      1,
      [&](Session& session) {
        EXPECT_EQ(grow(session), 1);
        joined(session);
      },
      [&] {
        std::map<MemberId, Ready> ready;
        for (const MemberId id : {1, 2}) ready[id] = join(id, joined);
        guard_.begin(guard_.view_of(1, frozen_of(1), ready));
        const Ready third = join(3, [](Session& session) { EXPECT_EQ(sum(session, "b", 1), 4); });
        guard_.begin(guard_.view_of(2, frozen_of(3), {{3, third}}));
      });
}

// The files of the ranks' shared memory that this process maps: /proc/self/maps has "begin-end flags offset device
// inode path".
std::set<std::uint64_t> mapped_arenas() {
  std::set<std::uint64_t> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:horo") == std::string::npos) continue;
    std::istringstream words(line);
    std::uint64_t begin = 0, end = 0, inode = 0;
    char dash = 0;
    std::string skipped;
    words >> std::hex >> begin >> dash >> end >> skipped >> skipped >> skipped >> std::dec >> inode;
    if (end - begin > ShmSegment::kMaxBytes) found.insert(inode);
  }
  return found;
}

std::size_t count_of(const std::set<std::uint64_t>& of, const std::set<std::uint64_t>& in) {
  return static_cast<std::size_t>(std::ranges::count_if(of, [&](std::uint64_t one) { return in.contains(one); }));
}

TEST_F(Grow, TheSharedMemoryOfTheRanksStaysIfAllOfThemGoOn) {
  transport_ = "shm";
  std::set<std::uint64_t> before;
  run(
      2,
      [&](Session& session) {
        EXPECT_EQ(sum(session, "before", 1), 2);
        if (session.topology().rank == 0) before = mapped_arenas();
        const Allocation memory = session.allocate(0, 64 << 10);
        EXPECT_EQ(grow(session), 1);
        auto* values = reinterpret_cast<float*>(memory.data.get());
        std::fill_n(values, 1024, 2.0F);
        TensorSpec spec = named("of the last epoch");
        spec.shape = {1024};
        session.run(spec, values, values);
        EXPECT_EQ(values[1023], 5);
        if (session.topology().rank == 0) {
          EXPECT_EQ(before.size(), 2U);
          EXPECT_EQ(mapped_arenas().size(), 3U);
          EXPECT_EQ(count_of(before, mapped_arenas()), 2U);
        }
        sum(session, "end", 1);
      },
      [&] {
        const Ready ready = join(2, [](Session& session) {
          std::vector<float> values(1024, 1.0F);
          TensorSpec spec = named("of the last epoch");
          spec.shape = {1024};
          session.run(spec, values.data(), values.data());
          EXPECT_EQ(values[1023], 5);
          sum(session, "end", 1);
        });
        guard_.begin(guard_.view_of(1, frozen_of(2), {{2, ready}}));
      });
}

// The process that has not joined may go on when nothing expects it any more, and write into what it was given.
TEST_F(Grow, TheSharedMemoryIsNewAfterAProcessThatMayHaveItHasNotJoined) {
  transport_ = "shm";
  std::set<std::uint64_t> before;
  run(
      2,
      [&](Session& session) {
        EXPECT_EQ(sum(session, "before", 1), 2);
        if (session.topology().rank == 0) before = mapped_arenas();
        EXPECT_EQ(grow(session), 2);
        EXPECT_EQ(sum(session, "after", 1), 2);
        if (session.topology().rank == 0) {
          const std::set<std::uint64_t> now = mapped_arenas();
          EXPECT_EQ(now.size() - count_of(before, now), 2U);
        }
        sum(session, "end", 1);
      },
      [&] {
        Config config = test::config_of(2, 3, "");
        config.transport = transport_;
        const Door never_opened = doors_of(config)();
        guard_.add(2);
        const View view = guard_.view_of(1, frozen_of(2), {{2, Ready{"", never_opened.card}}});
        for (const MemberId id : {0, 1}) guard_.send(id, view);
        for (const MemberId id : {0, 1}) guard_.send(id, Freeze{1, 2, "rank 2 has died"});
        guard_.begin(guard_.view_of(2, frozen_of(2), {}));
      });
}

TEST_F(Grow, TheGuardTellsWhichAreReadyAndRefusesOthersWithAReason) {
  run(
      1,
      [](Session& session) {
        session.can_grow("model=b\n");
        while (session.joiners().empty()) std::this_thread::yield();
        EXPECT_THAT(session.joiners(), ElementsAre(4, 7));
        EXPECT_EQ(grow(session), 1);
        EXPECT_TRUE(session.joiners().empty()) << "the guard tells it anew in each epoch";
      },
      [&] {
        EXPECT_THAT(guard_.receive<CanGrow>(0).terms, HasSubstr("model=b\n"));
        Config config = test::config_of(1, 2, "");
        config.min_np = 1;
        config.joins = true;
        config.guard_fd = guard_.add(1);
        guard_.send(1, Evicted{"the model is another one"});
        EXPECT_THAT([&] { Session(config, JoinTerms{"model=a\n"}); },
                    testing::ThrowsMessage<PeerLost>(HasSubstr("the model is another one")));
        guard_.send(0, horo::Grow{{4, 7}});
        const auto frozen = frozen_of(1);
        guard_.begin(guard_.view_of(1, frozen, {}));
      });
}

TEST(BeforeTheJoin, AProcessHasASessionOfItsOwnAndIsNeverRankZero) {
  Config config = test::config_of(4, 5, "");
  config.local_rank = 2;
  config.local_size = 4;
  config.joins = true;
  config.min_np = 1;
  config.guard_fd = 0;  // not used before the join
  Session session(config);
  EXPECT_EQ(session.topology().rank, 2);
  EXPECT_EQ(session.topology().size, 4);
  EXPECT_EQ(session.topology().local_rank, 2);
  EXPECT_THAT(session.members(), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(session.has_yet_to_join());
  EXPECT_EQ(sum(session, "alone", 2), 2);
  EXPECT_THROW(session.grow(), std::invalid_argument);
  EXPECT_TRUE(session.joiners().empty());
}

TEST(BeforeTheJoin, TheFirstPlaceOfAHostIsNotRankZeroEither) {
  for (const int size : {1, 4}) {
    Config config = test::config_of(7, 8, "");
    config.local_rank = 0;
    config.local_size = size;
    config.joins = true;
    config.min_np = 1;
    config.guard_fd = 0;
    Session session(config);
    EXPECT_EQ(session.topology().rank, std::max(size, 2) - 1);
    EXPECT_EQ(session.topology().size, std::max(size, 2));
  }
}

TEST(BeforeTheJoin, AProcessThatHoroRunDidNotStartToJoinIsRefused) {
  EXPECT_THAT([] { Session(Config(), JoinTerms()); },
              testing::ThrowsMessage<std::invalid_argument>(HasSubstr("HORO_JOINS")));
}

}  // namespace
}  // namespace horo
