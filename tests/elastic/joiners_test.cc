#include "elastic/joiners.h"

#include <gtest/gtest.h>

namespace horo {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kNow{};

Joiners started(MemberId first, MemberId count) {
  Joiners joiners({first, 2s, 60s});
  for (MemberId id = first; id < first + count; ++id) joiners.start(id);
  return joiners;
}

TEST(ElasticJoiners, TheFirstTermThatDiffersIsNamed) {
  EXPECT_EQ(difference_of("a=1\nb=2\n", "a=1\nb=2\n"), std::nullopt);
  EXPECT_EQ(difference_of("version=1\nHORO_BUCKET_BYTES=1000", "version=1\nHORO_BUCKET_BYTES=67108864"),
            "HORO_BUCKET_BYTES is 1000 here and 67108864 on the ranks that it joins");
  EXPECT_EQ(difference_of("a=1", "a=1\nw.shape=[3, 4]"),
            "w.shape is absent here and [3, 4] on the ranks that it joins");
  EXPECT_EQ(difference_of("a=1\nb=\x1b[2J", "a=1"), "b is \\x1b[2J here and absent on the ranks that it joins");
  EXPECT_EQ(difference_of("b=1\na=1", "a=1\nb=1"), "the terms are in another order than on the ranks that it joins");
}

TEST(ElasticJoiners, AnyTextIsCompared) {
  EXPECT_NE(difference_of("", "="), std::nullopt);
  EXPECT_NE(difference_of("\n\n", "a"), std::nullopt);
  EXPECT_NE(difference_of("a", "a="), std::nullopt);
}

TEST(ElasticJoiners, AMemberTakesItsWordBack) {
  Joiners joiners = started(2, 1);
  joiners.can_grow(0, "a=1");
  EXPECT_TRUE(joiners.can_grow(0));
  joiners.can_grow(0, "");
  EXPECT_FALSE(joiners.can_grow(0));
}

TEST(ElasticJoiners, AReadyOneWaitsForOthersThatAreStarted) {
  Joiners joiners = started(2, 2);
  const Silences silences(4, {10s, 120s, 1s});
  joiners.can_grow(0, "a=1");
  joiners.ready(2, {"a=1", {}}, kNow);
  EXPECT_TRUE(joiners.compare_with(0).empty());
  EXPECT_EQ(joiners.next_grow(2, silences, kNow), std::nullopt);
  EXPECT_EQ(joiners.deadline(kNow), kNow + 2s);
  EXPECT_EQ(joiners.next_grow(2, silences, kNow + 2s), Grow{{2}});
  EXPECT_EQ(joiners.next_grow(2, silences, kNow + 3s), std::nullopt) << "once in an epoch";
  joiners.begin_epoch();
  joiners.ready(3, {"a=1", {}}, kNow);
  EXPECT_TRUE(joiners.compare_with(0).empty());
  EXPECT_EQ(joiners.next_grow(1, silences, kNow), Grow{{2}}) << "room for one";
}

TEST(ElasticJoiners, AfterTheLastReadyOneIsGoneTheMembersAreToldThatNoneIs) {
  Joiners joiners = started(2, 1);
  const Silences silences(3, {10s, 120s, 1s});
  joiners.can_grow(0, "a=1");
  joiners.ready(2, {"a=1", {}}, kNow);
  EXPECT_TRUE(joiners.compare_with(0).empty());
  EXPECT_EQ(joiners.next_grow(1, silences, kNow), Grow{{2}});
  joiners.end(2);
  EXPECT_EQ(joiners.next_grow(1, silences, kNow), Grow{});
  EXPECT_EQ(joiners.next_grow(1, silences, kNow), std::nullopt);
}

}  // namespace
}  // namespace horo
