// Process sets that are older than a join: the ranks that know a set remove it.
#include <gmock/gmock.h>

#include <algorithm>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "horo/base/error.h"
#include "horo/tensors/join_state.h"
#include "tests/horo/growing_job.h"

namespace horo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::int64_t add_set(Session& session, const std::vector<int>& ranks, const std::string& name, bool shrinks = false) {
  return outcome_of(session, session.add_set(ranks, name, shrinks)).counts.at(0);
}

void remove_set(Session& session, std::uint32_t set) {
  outcome_of(session, session.remove_set(set));
}

void expect_refusal(Session& session, std::uint32_t set) {
  EXPECT_THAT([&] { session.remove_set(set); },
              testing::ThrowsMessage<std::invalid_argument>(HasSubstr("has joined after process set")));
}

class GrowingSets : public GrowingJob {
 protected:
  std::map<MemberId, Frozen> frozen_of_all(const std::vector<MemberId>& ids) {
    std::map<MemberId, Frozen> frozen;
    for (const MemberId id : ids) frozen[id] = guard_.receive<Frozen>(id);
    return frozen;
  }
  void begin(std::uint32_t epoch, const std::vector<MemberId>& ids, const std::map<MemberId, Ready>& ready) {
    View view = guard_.view_of(epoch, frozen_of_all(ids), ready);
    std::ranges::sort(view.members);
    guard_.begin(view);
  }
  // The process of this number is lost in this epoch; the others go on in the next one.
  void lose(MemberId lost, std::uint32_t epoch, const std::vector<MemberId>& others) {
    for (const MemberId id : others) guard_.send(id, Freeze{epoch, lost, "a rank has died"});
    guard_.send(lost, Evicted{"it has died"});
    begin(epoch + 1, others, {});
  }
};

// The last calls of all ranks: their numbers are the same on the rank that has joined.
void remake(Session& session) {
  EXPECT_EQ(add_set(session, {0, 2}, "evens"), 2);
  EXPECT_EQ(sum(session, "", 1), 4);
  remove_set(session, 2);
  EXPECT_EQ(add_set(session, {0, 2}, "evens"), 3);
  EXPECT_EQ(sum(session, "", 1), 4);
  remove_set(session, 3);
}

TEST_F(GrowingSets, AnOldSetIsRemovedByTheRanksThatKnowItAndMadeAnewByAll) {
  run(
      3,
      [](Session& session) {
        EXPECT_EQ(add_set(session, {0, 2}, "evens"), 1);
        grow(session);
        EXPECT_EQ(sum(session, "refused", 1), 4);
        remove_set(session, 1);
        remake(session);
      },
      [&] {
        const Ready ready = join(3, [](Session& session) {
          expect_refusal(session, 1);
          EXPECT_EQ(sum(session, "refused", 1), 4);
          remake(session);
        });
        begin(1, {0, 1, 2}, {{3, ready}});
      });
}

TEST_F(GrowingSets, ARemovalThatIsInFlightAtTheBorderEndsWithoutTheRankThatJoins) {
  run(
      3,
      [](Session& session) {
        EXPECT_EQ(add_set(session, {0, 2}, "evens"), 1);
        const bool is_early = session.topology().rank == 1;
        std::shared_ptr<Work> work;
        if (is_early) work = session.remove_set(1);
        grow(session);
        if (!is_early) work = session.remove_set(1);
        outcome_of(session, work);
        remake(session);
      },
      [&] {
        const Ready ready = join(3, remake);
        begin(1, {0, 1, 2}, {{3, ready}});
      });
}

TEST_F(GrowingSets, ARemovalGoesOnWhenARankThatKnowsTheSetIsLost) {
  std::latch submitted(2);
  run(
      3,
      [&](Session& session) {
        EXPECT_EQ(add_set(session, {0, 1}, "pair"), 1);
        grow(session);
        EXPECT_EQ(sum(session, "after", 1), 4);
        if (session.topology().rank == 2) {
          EXPECT_THROW(sum(session, "never", 1), PeerLost);
          return;
        }
        const std::shared_ptr<Work> work = session.remove_set(1);
        submitted.count_down();
        outcome_of(session, work);
        EXPECT_EQ(sum(session, "", 1), 3);
        EXPECT_EQ(add_set(session, {0, 1}, "pair"), 2);
      },
      [&] {
        const Ready ready = join(3, [](Session& session) {
          EXPECT_EQ(sum(session, "after", 1), 4);
          EXPECT_EQ(sum(session, "", 1), 3);
          EXPECT_EQ(add_set(session, {0, 1}, "pair"), 2);
        });
        begin(1, {0, 1, 2}, {{3, ready}});
        submitted.wait();
        lose(2, 1, {0, 1, 3});
      });
}

// Process 4 joins first, and is in a set; process 3 joins later, and leads the ranks that are left.
TEST_F(GrowingSets, ALeaderThatDoesNotKnowASetEndsItForTheRanksThatDo) {
  std::latch grown(3);
  const auto rest = [](Session& session) {
    EXPECT_EQ(sum(session, "", 1), 2);
    EXPECT_EQ(add_set(session, {1}, "alone"), 2);
    remove_set(session, 2);
    EXPECT_EQ(sum(session, "", 1), 2);
  };
  const auto grow_twice = [&](Session& session) {
    EXPECT_EQ(add_set(session, {1}, "alone", true), 1);
    grow(session);
    EXPECT_EQ(sum(session, "grown", 1), 3);
    grown.count_down();
  };
  run(
      1,
      [&](Session& session) {
        grow(session);
        grow_twice(session);
        EXPECT_THROW(sum(session, "never", 1), PeerLost);
      },
      [&] {
        const Ready first = join(4, [&](Session& session) {
          grow_twice(session);
          EXPECT_EQ(sum(session, "left", 1), 2);
          EXPECT_THAT(session.set_info(1).ranks, ElementsAre(1));
          remove_set(session, 1);
          rest(session);
        });
        begin(1, {0}, {{4, first}});
        const Ready second = join(3, [&](Session& session) {
          EXPECT_EQ(sum(session, "grown", 1), 3);
          grown.count_down();
          expect_refusal(session, 1);
          EXPECT_EQ(sum(session, "left", 1), 2);
          EXPECT_EQ(session.topology().rank, 0);
          rest(session);
        });
        begin(2, {0, 4}, {{3, second}});
        grown.wait();
        lose(0, 2, {3, 4});
      });
}

TEST(StateForARankThatJoins, SaysWhichSetsTheOthersKnow) {
  JoinState state;
  state.sets[3] = {"pair", {0, 4}, true, false};
  state.last_set = 5;
  state.first_sets = {{0, 0}, {4, 3}};
  state.unnamed[{0, "barrier"}] = 7;
  const std::vector<std::byte> bytes = encode(state);
  EXPECT_EQ(decode_join_state(bytes), state);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(decode_join_state(std::span(bytes).first(size)), ProtocolError);
  }
  EXPECT_THAT(first_sets_of(state, std::vector<std::uint32_t>{0, 3, 4}), ElementsAre(0, 6, 3));
  state.first_sets[4] = 7;
  EXPECT_THROW(decode_join_state(encode(state)), ProtocolError);
}

}  // namespace
}  // namespace horo
