// A rank that died according to its owner word, while its connections are still open: all ranks name it at once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ring/shm/arena.h"
#include "tests/horo/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<Links> connect_by_memory(int size) {
  const std::string addr = test::free_address();
  std::vector<Links> links(static_cast<std::size_t>(size));
  std::vector<std::function<void()>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back([&, rank] {
      Config config = test::config_of(rank, size, addr);
      config.transport = "shm";
      links[static_cast<std::size_t>(rank)] = connect_tcp(config, 0, make_tcp_exchange(config, 0));
    });
  }
  for (const auto& error : test::run_threads(ranks)) EXPECT_EQ(test::message_of(error), "");
  return links;
}

// The errors of the ranks of a world of three. The last rank dies after a barrier and then calls `last`.
std::vector<std::string> ends_after_a_death(const std::function<void(Session&)>& others,
                                            const std::function<void(Session&)>& last) {
  std::vector<Links> links = connect_by_memory(3);
  const auto arenas = links[2].arenas;
  Config config;
  config.transport = "shm";
  return run_world_over(
      std::move(links),
      [&](Session& session) {
        meet(session);
        if (session.topology().rank != 2) return others(session);
        arenas->own()->owner_word().store(FUTEX_OWNER_DIED);  // as the kernel does
        last(session);
      },
      config);
}

void reduce_two_thousand(Session& session, const std::string& name) {
  std::vector<float> data(2'000, 1.f);
  session.run(float_spec(name, 2'000), data.data(), data.data());
}

constexpr const char* kSeenDeath = ") is lost: its process ended without a goodbye (seen by rank ";

TEST(Death, IsDetectedWhileOthersWaitForAgreement) {
  EXPECT_THAT(ends_after_a_death([](Session& session) { reduce_two_thousand(session, "x"); },
                                 [](Session& session) { reduce_two_thousand(session, "y"); }),
              Each(AllOf(StartsWith("rank 2 (host "), HasSubstr(kSeenDeath))));
}

}  // namespace
}  // namespace horo
