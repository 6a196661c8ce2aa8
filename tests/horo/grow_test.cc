// Growth of an elastic job: what the sessions of the ranks and of those that join do. The test is the guard.
#include <gmock/gmock.h>

#include <array>
#include <map>
#include <memory>
#include <thread>

#include "horo/base/error.h"
#include "tests/horo/growing_job.h"

namespace horo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(GrowingJob, ARankThatJoinsHasTheNextNumberAndTakesPart) {
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

TEST_F(GrowingJob, ARankThatJoinsHasTheProcessSetsAndTheNumbersOfUnnamedCalls) {
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
TEST_F(GrowingJob, ACallThatIsInFlightAtTheBorderRunsWithTheRankThatJoins) {
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

TEST_F(GrowingJob, ACallWhoseMeaningDependsOnTheSizeFailsIfItIsInFlightAtTheBorder) {
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

TEST_F(GrowingJob, TheRequestRunsAgainIfARankWasNotAtTheBorder) {
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

TEST_F(GrowingJob, TheRequestIsDoneIfNoneHasJoined) {
  run(
      2,
      [](Session& session) {
        EXPECT_EQ(grow(session), 1);
        EXPECT_EQ(sum(session, "after", 1), 2);
      },
      [&] { guard_.begin(guard_.view_of(1, frozen_of(2), {})); });
}

TEST_F(GrowingJob, OneRankBecomesThreeAndTheyMayGrowAgain) {
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

TEST_F(GrowingJob, TheGuardTellsWhichAreReadyAndRefusesOthersWithAReason) {
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
        guard_.send(0, Grow{{4, 7}});
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
