// A checkpoint that was written by n ranks is read by m ranks, bit by bit.
#include <gmock/gmock.h>

#include <cstring>

#include "horo/checkpoint/catalog.h"
#include "tests/horo/checkpoint/states.h"
#include "tests/horo/worlds.h"

namespace horo::checkpoint {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr std::size_t kPerRankTensor = 7;  // of small_state()

void save_by(int ranks, const std::string& path, std::uint64_t seed) {
  const auto errors = run_world(ranks, [&](Session& session) {
    const auto rank = static_cast<std::size_t>(session.topology().rank);
    const State state(small_state(), seed, rank, static_cast<std::size_t>(ranks));
    Saver saver;
    SaveOptions options;
    options.path = path;
    options.step = seed;
    options.rest = "{\"pass\": 3,\n \"big\": 340282366920938463463374607431768211455}";
    ASSERT_TRUE(begin_save(saver, &session, options, state.tensors()));
    take_all(saver, state);
    saver.start();
    EXPECT_TRUE(saver.wait_until(TimePoint::max()));
    EXPECT_EQ(saver.progress().published, 1U);
    EXPECT_EQ(saver.progress().published_step, seed);
    EXPECT_EQ(saver.progress().bytes_done, saver.progress().bytes_total);
    meet(session);
  });
  EXPECT_THAT(errors, Each(""));
}

struct LoadWay {
  bool verifies_first = true;
  bool has_new = false;    // memory of some tensors is new, on each rank of others, too
  bool has_hosts = false;  // each rank is on a host of its own
};

void load_by(int ranks, const std::string& path, std::uint64_t seed, const LoadWay& way) {
  const auto set_host = [&way](Config& config) {
    if (way.has_hosts) config.local_size = 1, config.local_rank = 0;
  };
  const auto body = [&](Session& session) {
    const auto rank = static_cast<std::size_t>(session.topology().rank);
    State expected(small_state(), seed, rank, static_cast<std::size_t>(ranks));
    expected.copy(kPerRankTensor, State(small_state(), seed));  // the value of rank 0
    State state(small_state(), seed + 1, rank, static_cast<std::size_t>(ranks));
    for (std::size_t i = 0; i < state.tensors().size(); ++i)
      state.tensors()[i].is_new = way.has_new && (i % 2 == 0 || (i + rank) % 3 == 0);
    Checkpoint checkpoint(path);
    load(checkpoint, &session, state.tensors(), way.verifies_first);
    EXPECT_TRUE(state == expected);
    meet(session);
  };
  EXPECT_THAT(run_world(ranks, body, {}, set_host), Each(""));
}

class RoundTrip : public testing::TestWithParam<std::tuple<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Ranks, RoundTrip, testing::Combine(testing::Values(1, 2, 3, 8), testing::Values(1, 2, 3, 8)),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + "To" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(RoundTrip, AnyNumberOfRanksReadsWhatAnyNumberHasWritten) {
  const auto [writers, readers] = GetParam();
  const TemporaryFolder folder;
  save_by(writers, folder / "step-7", 7);
  for (const bool has_hosts : {false, true}) {
    load_by(readers, folder / "step-7", 7, {.verifies_first = writers > readers, .has_hosts = has_hosts});
    load_by(readers, folder / "step-7", 7, {.has_new = true, .has_hosts = has_hosts});
  }
  Checkpoint checkpoint(folder / "step-7");
  verify(checkpoint);
  EXPECT_EQ(checkpoint.index().members.size(), static_cast<std::size_t>(writers));
  EXPECT_THAT(checkpoint.index().rest, HasSubstr("340282366920938463463374607431768211455"));
}

TEST(Checkpoints, RanksThatLoadDifferentTensorsAreToldWhich) {
  const TemporaryFolder folder;
  save_by(1, folder / "one", 7);
  for (const int with_less : {0, 1, 2}) {
    const auto errors = run_world(3, [&](Session& session) {
      State state(small_state(), 8);
      if (session.topology().rank == with_less) state.tensors().pop_back();
      Checkpoint checkpoint(folder / "one");
      load(checkpoint, &session, state.tensors());
    });
    const int other = with_less == 0 ? 1 : with_less;
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 0 and rank " + std::to_string(other) + " load different tensors"),
                                   HasSubstr("large"))));
  }
}

// The tied one of two is in use on one rank: its blocks are read once, and written behind the verification.
TEST(Checkpoints, TiedTensorsOfWhichOneIsNewLoad) {
  const TemporaryFolder folder;
  save_by(2, folder / "one", 7);
  for (const std::size_t is_new : {0, 6}) {
    const auto errors = run_world(2, [&](Session& session) {
      std::vector<StateTensor> forms = small_state();
      for (StateTensor& form : forms) form.alias_of = -1;  // here they have memory of their own
      State state(forms, 8);
      if (session.topology().rank == 0) state.tensors()[is_new].is_new = true;
      Checkpoint checkpoint(folder / "one");
      load(checkpoint, &session, state.tensors(), true);
      const State saved(small_state(), 7);
      const std::size_t bytes = std::size_t{37} * 11 * 4;
      EXPECT_EQ(std::memcmp(state.tensors()[0].data, saved.tensors()[0].data, bytes), 0);
      EXPECT_EQ(std::memcmp(state.tensors()[6].data, saved.tensors()[0].data, bytes), 0);
      meet(session);
    });
    EXPECT_THAT(errors, Each(""));
  }
}

TEST(Checkpoints, AProcessAloneSavesAndLoads) {
  const TemporaryFolder folder(true);
  const State saved(small_state(), 3);
  save_alone(folder / "a/b/one", saved, 5);
  State loaded(small_state(), 4);
  Checkpoint checkpoint(folder / "a/b/one");
  load(checkpoint, nullptr, loaded.tensors());
  EXPECT_TRUE(loaded == saved);
  EXPECT_EQ(checkpoint.index().step, 5U);
}

TEST(Checkpoints, TheListHasTheNewestFirst) {
  const TemporaryFolder folder;
  const State state(small_state(), 3);
  for (const std::uint64_t step : {8, 9, 10}) save_alone(folder / ("step-" + std::to_string(step)), state, step);
  write_file(folder / "step-9/index.json", "{}");
  std::filesystem::create_directory(folder / "other");
  const std::vector<Listed> all = list(folder.path().string());
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].path, folder / "step-10");
  EXPECT_EQ(all[0].error, "");
  EXPECT_EQ(all[1].step, 9U);
  EXPECT_THAT(all[1].error, HasSubstr("step-9/index.json"));
  EXPECT_EQ(all[2].step, 8U);
  EXPECT_TRUE(list(folder / "none").empty());
}

}  // namespace
}  // namespace horo::checkpoint
