#include "bench/against/scores.h"

#include <gmock/gmock.h>

namespace horo::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Row timed(const Contestant& contestant, std::vector<double> times_us) {
  Row row;
  row.contestant = contestant;
  row.times_us = std::move(times_us);
  return row;
}

const Contestant kBucket{"horo", "shm-bucket"}, kTcp{"horo", "tcp"};
const Contestant kOpenMpi{"openmpi", "default"}, kOpenMpiTcp{"openmpi", "tcp"}, kMpich{"mpich", "default"};

TEST(BenchScores, EachRoundIsComparedWithItsBestPeer) {
  std::vector<Row> rows{timed(kOpenMpi, {10, 40, 60}), timed(kMpich, {20, 30, 90}), timed(kBucket, {5, 10, 30})};
  add_ratios(rows);
  EXPECT_THAT(rows[2].ratios, ElementsAre(2, 3, 2));
  EXPECT_THAT(rows[0].ratios, IsEmpty());
}

TEST(BenchScores, OverTcpOnlyPeersOverTcpAreRivals) {
  std::vector<Row> rows{timed(kOpenMpi, {1}), timed(kOpenMpiTcp, {30}), timed(kTcp, {10})};
  add_ratios(rows);
  EXPECT_THAT(rows[2].ratios, ElementsAre(3));
}

TEST(BenchScores, WithoutARivalThereIsNoRatio) {
  std::vector<Row> rows{timed(kOpenMpi, {1}), timed(kTcp, {10})};
  add_ratios(rows);
  EXPECT_THAT(rows[1].ratios, IsEmpty());
}

TEST(BenchScores, TheLimitIsComparedWithinARound) {
  Row row = timed(kBucket, {100, 2, 200});
  EXPECT_FALSE(row.limit_fraction());
  row.limits_us = {50, 1, 100};
  EXPECT_DOUBLE_EQ(*row.limit_fraction(), 0.5);
}

TEST(BenchScores, ALineHasADashForAMissingContestant) {
  std::vector<Row> rows{timed(kOpenMpi, {12, 14, 16}), timed(kBucket, {4, 7, 4})};
  add_ratios(rows);
  const std::string line = table_line({.bytes = 1 << 20}, {kOpenMpi, kMpich, kBucket}, rows);
  EXPECT_THAT(line, HasSubstr("1M"));
  EXPECT_THAT(line, HasSubstr("14.00"));
  EXPECT_THAT(line, HasSubstr(" - "));
  EXPECT_THAT(line, HasSubstr("3.00 (2.00..4.00)"));
}

TEST(BenchScores, AColumnIsAsWideAsItsHead) {
  const Contestant longest{"horo", "abi-1000-bucket"};
  const std::vector<Contestant> contestants{kOpenMpi, kBucket, longest};
  std::vector<Row> rows{timed(kOpenMpi, {12}), timed(kBucket, {4}), timed(longest, {3})};
  add_ratios(rows);
  const std::string head = table_head(contestants);
  EXPECT_THAT(head, HasSubstr("  horo-abi-1000-bucket"));
  EXPECT_THAT(head, HasSubstr("  best peer/abi-1000-bucket"));
  EXPECT_EQ(head.size(), table_line({.bytes = 1 << 20}, contestants, rows).size());
}

}  // namespace
}  // namespace horo::bench
