#include "ring/schedule/host_cells.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

namespace horo::host_cells_test {
namespace {

constexpr std::size_t kCellBytes = 64;

// Blocks of different lengths, some of them empty.
std::vector<std::size_t> begins_for(std::size_t members) {
  std::vector<std::size_t> begins{0};
  for (std::size_t member = 0; member < members; ++member) begins.push_back(begins.back() + member * 7 % 5 * 100);
  return begins;
}

HostCells cells_of(const std::vector<int>& hosts, int host, HostCells::Lags lags) {
  const std::vector<std::int64_t> nobody(hosts.size(), kAbsent);
  return {hosts_of_group(nobody, hosts), host, begins_for(hosts.size()), kCellBytes, lags};
}

const std::vector<std::vector<int>> kLayouts = {{0, 0, 1, 1}, {0, 0, 1},       {0, 1, 1, 1, 1, 1},
                                                {0, 1, 0, 1}, {0, 0, 0, 1, 1}, {0, 0, 0, 1, 1, 2, 3, 3, 3, 3}};

int host_count(const std::vector<int>& hosts) {
  return static_cast<int>(std::set<int>(hosts.begin(), hosts.end()).size());
}

TEST(HostCells, EveryHostHandlesEveryCellOnceInAscendingOrder) {
  for (const auto& hosts : kLayouts) {
    for (int host = 0; host < host_count(hosts); ++host) {
      const HostCells cells = cells_of(hosts, host, {4, 0});
      std::map<int, std::size_t> handled;  // bytes, by block
      for (std::size_t position = 0; position < cells.hosts().members[static_cast<std::size_t>(host)].size();
           ++position) {
        std::map<int, std::uint32_t> last;
        for (const HostCells::Cell& cell : cells.stream(static_cast<int>(position))) {
          if (cell.block == HostCells::kNone) continue;
          EXPECT_TRUE(last.emplace(cell.block, cell.number).second || cell.number > last[cell.block]);
          last[cell.block] = cell.number;
          EXPECT_EQ(cell.range.begin, cells.block(cell.block).begin + cell.number * kCellBytes);
          EXPECT_LE(cell.range.size, kCellBytes);
          handled[cell.block] += cell.range.size;
        }
        EXPECT_EQ(cells.stream(static_cast<int>(position)).size(), cells.length());
      }
      for (int member = 0; member < static_cast<int>(hosts.size()); ++member) {
        EXPECT_EQ(handled[member], cells.block(member).size) << member;
      }
    }
  }
}

// A member sums its own cells when the other hosts have sent theirs, whatever the index in the streams of the hosts.
TEST(HostCells, OwnCellsComeTurnsLaterThanTheCellsOfOthers) {
  for (const auto& hosts : kLayouts) {
    for (int host = 0; host < host_count(hosts); ++host) {
      const HostCells cells = cells_of(hosts, host, {2, 0});
      std::size_t turn = 0;
      for (std::size_t k = 0; k < cells.length(); ++k) {
        std::set<std::size_t> turns;
        for (std::size_t position = 0; position < cells.hosts().members[static_cast<std::size_t>(host)].size();
             ++position) {
          const HostCells::Cell& cell = cells.stream(static_cast<int>(position))[k];
          if (cell.block == HostCells::kNone) continue;
          turns.insert(cell.number + (cells.host_of(cell.block) == host ? 2u : 0u));
        }
        ASSERT_EQ(turns.size(), 1u) << "cells with one index are of one turn";
        EXPECT_GE(*turns.begin(), turn);
        turn = *turns.begin();
      }
    }
  }
}

TEST(HostCells, LinksJoinEveryMemberWithEveryOtherHostInBothRoles) {
  for (const auto& hosts : kLayouts) {
    const HostCells cells = cells_of(hosts, 0, {0, 0});
    std::map<std::tuple<int, int, std::uint32_t>, int> ends;
    for (int member = 0; member < static_cast<int>(hosts.size()); ++member) {
      std::set<std::pair<int, bool>> met;  // host, whether the block is the member's
      for (const HostCells::Link& link : cells.links_of(member)) {
        const bool owns = link.block == member;
        EXPECT_TRUE(owns || link.partner == member);
        EXPECT_EQ(link.partner, cells.partner(link.block, cells.host_of(link.partner), link.first));
        EXPECT_EQ(link.is_empty, link.first >= cells.cells_of(link.block));
        met.emplace(cells.host_of(owns ? link.partner : link.block), owns);
        ++ends[{link.block, link.partner, link.first}];
      }
      EXPECT_EQ(met.size(), 2 * static_cast<std::size_t>(host_count(hosts) - 1)) << member;
    }
    for (const auto& [link, count] : ends) EXPECT_EQ(count, 2) << "both members know it";
  }
}

}  // namespace
}  // namespace horo::host_cells_test
