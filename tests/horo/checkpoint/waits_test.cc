// Ranks that wait for one another in a save: limits, ends, errors of one rank, and ranks with many ranges of rows.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cstdlib>
#include <semaphore>

#include "horo/base/fail_point.h"
#include "horo/checkpoint/catalog.h"
#include "tests/horo/checkpoint/states.h"
#include "tests/horo/worlds.h"

namespace horo::checkpoint {
namespace {

using testing::Each;
using testing::HasSubstr;

std::binary_semaphore is_at_publish{0}, may_publish_now{0};

void stop_at_publish(const char* name) noexcept {
  if (std::string_view(name) != "checkpoint.publish") return;
  is_at_publish.release();
  may_publish_now.acquire();
}

// Rank 0 stops before it publishes, until the other one says so.
class StoppedRank0 : public testing::Test {
 protected:
  void SetUp() override { fail_point_hook = stop_at_publish; }
  void TearDown() override {
    fail_point_hook = nullptr;
    ::unsetenv("HORO_CHECKPOINT_TIMEOUT_MS");
  }

  // Begins and starts a save on each of two ranks; `rest` is called by rank 1.
  void run(const std::function<void(Saver& saver)>& rest) {
    const auto errors = run_world(2, [&](Session& session) {
      const State state({{"a", "float32", {100, 3}}}, 1);
      Saver saver;
      SaveOptions options;
      options.path = folder_ / "one";
      ASSERT_TRUE(begin_save(saver, &session, options, state.tensors()));
      take_all(saver, state);
      saver.start();
      if (session.topology().rank == 1) rest(saver);
      if (session.topology().rank == 0) {
        EXPECT_EQ(thrown_by([&] { saver.wait_until(TimePoint::max()); }), "");
      }
      meet(session);
    });
    EXPECT_THAT(errors, Each(""));
  }

  const TemporaryFolder folder_;
};

TEST_F(StoppedRank0, EndsTheSaveOfTheOthersAfterTheLimit) {
  ::setenv("HORO_CHECKPOINT_TIMEOUT_MS", "1500", 1);
  run([](Saver& saver) {
    is_at_publish.acquire();
    EXPECT_THAT(thrown_by([&] { saver.wait_until(TimePoint::max()); }), HasSubstr("HORO_CHECKPOINT_TIMEOUT_MS"));
    may_publish_now.release();
  });
}

TEST_F(StoppedRank0, MayPublishWhatARankHasGivenUpTooLate) {
  run([](Saver& saver) {
    is_at_publish.acquire();
    saver.give_up("too late");
    may_publish_now.release();
    EXPECT_EQ(thrown_by([&] { saver.wait_until(TimePoint::max()); }), "");
  });
  EXPECT_EQ(Checkpoint(folder_ / "one").index().step, 0U);
}

TEST(Refusals, OfOneRankAreToldToAll) {
  const TemporaryFolder folder;
  save_alone(folder / "there", State({{"a", "float32", {100, 3}}}, 1));
  const auto errors = run_world(2, [&](Session& session) {
    const State state({{"a", "float32", {100, 3}}}, 1);
    const bool refuses = session.topology().rank == 1;
    Saver saver;
    SaveOptions options;
    options.path = folder / "one";
    EXPECT_EQ(thrown_by([&] {
                if (refuses) refuse_save(&session, "no path");
                begin_save(saver, &session, options, state.tensors());
              }),
              "rank 1: no path");
    Checkpoint checkpoint(folder / "there");
    EXPECT_EQ(thrown_by([&] {
                if (refuses) refuse_load(&session, "no tensors");
                load(checkpoint, &session, state.tensors());
              }),
              "rank 1: no tensors");
    meet(session);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Ranges, ThatTouchAreOnePiece) {
  const TemporaryFolder folder;
  State state({{"s", "uint8", {9}, TensorKind::kSharded}}, 1);
  state.tensors()[0].ranges = {{0, 3}, {3, 3}, {3, 7}, {7, 9}};
  save_alone(folder / "one", state);
  EXPECT_EQ(Checkpoint(folder / "one").index().parts.size(), 1U);
}

TEST(Ranges, AreMoreThanAProcessMayHaveFilesOpen) {
  const TemporaryFolder folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto errors = run_world(2, [&](Session& session) {
    const auto rank = static_cast<std::size_t>(session.topology().rank);
    const State state({{"s", "uint8", {900}, TensorKind::kSharded}}, 1, rank, 2);
    meet(session);
    if (rank == 0) {
      const auto open = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
      const rlimit low{static_cast<rlim_t>(open) + 100, before.rlim_max};
      EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
    }
    meet(session);
    SaveOptions options;
    options.path = folder / "one";
    save(&session, options, state.tensors());
    meet(session);
  });
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(Checkpoint(folder / "one").index().parts.size(), 300U);
}

}  // namespace
}  // namespace horo::checkpoint
