#include "bench/against/hosts.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace horo::bench {
namespace {

const HostList kTwo("left=10.0.0.1,right=10.0.0.2", "line");

TEST(BenchHosts, RanksOfAHostFollowEachOtherAndTheFirstHasOneMore) {
  const std::vector<std::size_t> host{0, 0, 0, 1, 1};
  for (int rank = 0; rank < 5; ++rank) {
    const HostList::Placement placement = kTwo.place(rank, 5);
    EXPECT_EQ(placement.host, host[static_cast<std::size_t>(rank)]) << rank;
    EXPECT_EQ(placement.local_rank, rank < 3 ? rank : rank - 3);
    EXPECT_EQ(placement.local_size, rank < 3 ? 3 : 2);
  }
  EXPECT_EQ(kTwo.slots(5), "10.0.0.1:3,10.0.0.2:2");
  EXPECT_EQ(kTwo.slots(2), "10.0.0.1:1,10.0.0.2:1");
}

TEST(BenchHosts, WithoutAListAllRanksAreOnThisHost) {
  const HostList here;
  EXPECT_FALSE(here.are_namespaces());
  EXPECT_TRUE(here.prefix(here.place(2, 3).host).empty());
}

TEST(BenchHosts, ACommandThereBeginsWithItsNamespace) {
  EXPECT_EQ(kTwo.prefix(1), (std::vector<std::string>{"ip", "netns", "exec", "right"}));
}

TEST(BenchHosts, AnInvalidListIsRefused) {
  EXPECT_THROW(HostList("left", "line"), std::invalid_argument);
  EXPECT_THROW(HostList("left=", "line"), std::invalid_argument);
  EXPECT_THROW(HostList("=10.0.0.1,right=10.0.0.2", "line"), std::invalid_argument);
  EXPECT_THROW(HostList("left=10.0.0.1", "line"), std::invalid_argument) << "one host is no comparison between hosts";
}

}  // namespace
}  // namespace horo::bench
