// The shared memory of the ranks of a growing job.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "ring/links.h"
#include "ring/shm/segment.h"
#include "tests/horo/growing_job.h"

namespace horo {
namespace {

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

TEST_F(GrowingJob, TheSharedMemoryOfTheRanksStaysIfAllOfThemGoOn) {
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
TEST_F(GrowingJob, TheSharedMemoryIsNewAfterAProcessThatMayHaveItHasNotJoined) {
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

}  // namespace
}  // namespace horo
