// Power cuts and errors of the disk, at each call that changes a file: a checkpoint that was there stays, and one with
// its final name is whole.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <semaphore>
#include <system_error>

#include "horo/base/fail_point.h"
#include "horo/checkpoint/catalog.h"
#include "ring/os/backoff.h"
#include "tests/effort.h"
#include "tests/horo/checkpoint/power_cut.h"
#include "tests/horo/checkpoint/states.h"
#include "tests/horo/checkpoint/system_calls.h"
#include "tests/horo/worlds.h"

namespace horo::checkpoint {
namespace {

using test::PowerCut;
using test::SystemCall;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

class Hooked {
 public:
  explicit Hooked(test::SystemCallHook hook) { test::set_system_call_hook(std::move(hook)); }
  ~Hooked() { test::set_system_call_hook({}); }
  Hooked(const Hooked&) = delete;
  Hooked& operator=(const Hooked&) = delete;
};

std::vector<StateTensor> tiny_state() {
  return {{"a", "float32", {20, 5}}, {"b", "int64", {}}, {"c", "uint8", {7, 3}, TensorKind::kSharded}};
}

// The step of the newest checkpoint; 0: there is none. Each with a final name is whole.
std::uint64_t newest_step(const std::filesystem::path& folder) {
  std::uint64_t newest = 0;
  for (const Listed& one : list(folder.string())) {
    EXPECT_EQ(one.error, "");
    if (!one.error.empty()) continue;
    Checkpoint checkpoint(one.path);
    EXPECT_EQ(thrown_by([&] { verify(checkpoint); }), "");
    newest = std::max(newest, *one.step);
  }
  return newest;
}

// The error of the save, or "".
std::string save_step(Session& session, Saver& saver, const std::string& folder, std::uint64_t step,
                      const std::string& name = "") {
  const auto rank = static_cast<std::size_t>(session.topology().rank);
  const State state(tiny_state(), step, rank, static_cast<std::size_t>(session.topology().size));
  SaveOptions options;
  options.path = folder + "/" + (name.empty() ? "step-" + std::to_string(step) : name);
  options.step = step;
  options.keep = 2;
  return thrown_by([&] {
    if (!begin_save(saver, &session, options, state.tensors())) throw std::runtime_error("skipped");
    take_all(saver, state);
    saver.start();
    saver.wait_until(TimePoint::max());
  });
}

// Whether two names can be exchanged. Where they cannot, all saves have one name, which gets to its checkpoint again
// when a job takes the lock of the folder.
class Kernels : public testing::TestWithParam<bool> {
 protected:
  static int old_error(const SystemCall& call) {
    return !GetParam() && !call.is_done && call.name == "renameat2" ? EINVAL : 0;
  }
  static std::string name(const std::string& otherwise) { return GetParam() ? otherwise : "last"; }
};
INSTANTIATE_TEST_SUITE_P(Checkpoints, Kernels, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "ThatExchangeNames" : "ThatDoNot"; });

TEST_P(Kernels, APowerCutAtAnyCallLeavesTheNewestCheckpointWhole) {
  const TemporaryFolder folder, after;
  std::atomic<std::uint64_t> published = 0;
  PowerCut disk(folder.path());
  int cuts = 0;
  const Hooked hooked([&](const SystemCall& call) {
    disk.follow(call);
    for (const bool loses_names : {true, false}) {
      disk.cut(after.path(), loses_names);
      if (!GetParam()) give_names_back(open_folder(after.path().string(), true));
      EXPECT_GE(newest_step(after.path()), published) << call.name << " " << call.path;
      ++cuts;
    }
    return old_error(call);
  });
  const auto errors = run_world(2, [&](Session& session) {
    Saver saver;
    for (std::uint64_t step = 1; step <= test::effort(3U) + 1; ++step) {  // one of them replaces another one
      EXPECT_EQ(save_step(session, saver, folder.path().string(), step, name(step == 3 ? "step-2" : "")), "");
      meet(session);
      if (session.topology().rank == 0) published = step;
    }
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_GT(cuts, 100);
}

// The disk is full, the quota is used up, the device fails, the file system was mounted anew for reading alone.
constexpr std::array kErrors{ENOSPC, EDQUOT, EIO, EROFS};

// Lets the n-th call fail, from `begin` on.
class FailingCall {
 public:
  int on(const SystemCall& call) {
    // What is removed later instead, what a kernel without the call does as well, and the lock's file.
    if (call.is_done || call.name == "unlinkat" || call.name == "renameat2" || call.path == ".lock") return 0;
    const bool is_now = ++calls_ == at_;
    if (is_now) what_ = call.name + " " + call.path;
    is_hit_ = is_hit_ || is_now;
    return is_now ? error() : 0;
  }
  void begin(int at) {
    calls_ = 0;
    at_ = at;
    is_hit_ = false;
  }
  bool is_hit() const { return is_hit_; }
  std::string what() const { return what_; }
  int error() const { return kErrors[static_cast<std::size_t>(at_) % kErrors.size()]; }

 private:
  std::atomic<int> calls_ = 0, at_ = 0;
  std::atomic<bool> is_hit_ = false;
  std::string what_;
};

TEST_P(Kernels, AnErrorAtAnyCallFailsTheSaveWithOneLineOnAllRanksAndTheNextOneWorks) {
  const TemporaryFolder folder;
  FailingCall failing;
  std::array<std::atomic<bool>, 2> has_failed{};
  int hits = 0;
  const Hooked hooked([&](const SystemCall& call) {
    const int old = old_error(call);
    return old != 0 ? old : failing.on(call);
  });
  const auto errors = run_world(2, [&](Session& session) {
    const auto rank = static_cast<std::size_t>(session.topology().rank);
    Saver saver;
    std::uint64_t step = 1;
    EXPECT_EQ(save_step(session, saver, folder.path().string(), step, name("")), "");
    for (int at = 1;; ++at) {
      meet(session);
      if (rank == 0) failing.begin(at);
      meet(session);
      const std::string error = save_step(session, saver, folder.path().string(), step + 1, name(""));
      has_failed[rank] = !error.empty();
      meet(session);
      const bool is_hit = failing.is_hit();
      const int expected = failing.error();
      meet(session);
      if (!is_hit) {
        EXPECT_EQ(error, "");
        return;
      }
      if (rank == 0) {
        ++hits;
        EXPECT_EQ(has_failed[0], has_failed[1]) << failing.what();
        EXPECT_GE(newest_step(folder.path()), step) << failing.what();
        failing.begin(0);
      }
      if (!error.empty()) {
        EXPECT_THAT(error, HasSubstr(folder.path().string()));
        EXPECT_THAT(error, HasSubstr(std::generic_category().message(expected)));
        EXPECT_EQ(error.find('\n'), std::string::npos);
      }
      meet(session);
      step += 2;
      EXPECT_EQ(save_step(session, saver, folder.path().string(), step, name("")), "") << failing.what();
      if (rank == 0) {
        EXPECT_EQ(newest_step(folder.path()), step);
      }
    }
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_GT(hits, 15);
}

// 5 MB/s: each block takes its time in the thread that writes.
TEST(Disks, OnASlowDiskTheCallerWaitsForTheCopyAlone) {
  const TemporaryFolder folder;
  const State state({{"a", "float32", {1 << 19}}}, 1);  // 2 MiB
  const Hooked hooked([&](const SystemCall& call) {
    if (call.name == "pwrite" && !call.is_done) back_off(std::chrono::milliseconds(200));
    return 0;
  });
  Saver saver;
  SaveOptions options;
  options.path = folder / "step-1";
  ASSERT_TRUE(begin_save(saver, nullptr, options, state.tensors()));
  take_all(saver, state);
  saver.start();
  for (int step = 0; step < 5; ++step) EXPECT_FALSE(begin_save(saver, nullptr, options, state.tensors()));
  EXPECT_TRUE(saver.progress().is_writing);
  saver.wait_until(TimePoint::max());
  EXPECT_GT(saver.progress().seconds_write, 0.4);
  EXPECT_LT(saver.progress().seconds_copy, 0.2);
}

TEST(Disks, ShortWritesAreContinued) {
  const TemporaryFolder folder;
  const State state(tiny_state(), 1);
  test::set_short_writes(100);
  save_alone(folder / "one", state);
  test::set_short_writes(0);
  Checkpoint checkpoint(folder / "one");
  verify(checkpoint);
}

// A call that a signal has interrupted is made again.
TEST(Disks, SignalsEndNoCall) {
  const TemporaryFolder folder;
  const State state(tiny_state(), 1);
  std::map<std::string, int> interrupted;
  {
    const Hooked hooked([&](const SystemCall& call) {
      const bool can = call.name != "renameat" && call.name != "renameat2" && call.name != "unlinkat";
      return !call.is_done && can && interrupted[call.name]++ % 2 == 0 ? EINTR : 0;
    });
    save_alone(folder / "one", state);
  }
  for (const char* name : {"pwrite", "fallocate", "openat", "mkdirat", "fsync", "fdatasync", "sync_file_range"})
    EXPECT_GE(interrupted[name], 2) << name;
  Checkpoint checkpoint(folder / "one");
  verify(checkpoint);
}

// After a failed fsync the kernel may have dropped what it could not write: the file is not synced again.
TEST(Disks, AFailedSyncIsNotRepeated) {
  const TemporaryFolder folder;
  const State state(tiny_state(), 1);
  int syncs = 0;
  const Hooked hooked([&](const SystemCall& call) {
    if (call.is_done || call.name != "fdatasync") return 0;
    ++syncs;
    return EIO;
  });
  EXPECT_THAT(thrown_by([&] { save_alone(folder / "one", state); }),
              AllOf(HasSubstr("rank 0: cannot write to the disk "), HasSubstr("Input/output error")));
  EXPECT_EQ(syncs, 1);
  EXPECT_TRUE(list(folder.path().string()).empty());
}

// The kernel tells an error of writing once: by the call that waits for a range of the file, perhaps.
TEST(Disks, AnErrorOfTheWritingInTheBackgroundFailsTheSave) {
  const TemporaryFolder folder;
  const Hooked hooked(
      [](const SystemCall& call) { return !call.is_done && call.name == "sync_file_range" ? ESTALE : 0; });
  EXPECT_THAT(thrown_by([&] { save_alone(folder / "one", State(tiny_state(), 1)); }),
              HasSubstr(std::generic_category().message(ESTALE)));
  EXPECT_TRUE(list(folder.path().string()).empty());
}

TEST(Disks, OlderCheckpointsAreRemovedWhenTheirNewNamesAreOnTheDisk) {
  const TemporaryFolder folder;
  bool is_renamed = false;
  int early = 0, removed = 0;
  const Hooked hooked([&](const SystemCall& call) {
    if (call.is_done && call.name == "renameat" && call.path.starts_with("step-")) is_renamed = true;
    if (call.is_done && call.name == "fsync") is_renamed = false;
    if (!call.is_done && call.name == "unlinkat" && is_renamed) ++early;
    if (call.is_done && call.name == "unlinkat" && call.path.starts_with(".del-")) ++removed;
    return 0;
  });
  for (const std::uint64_t step : {1, 2, 3, 4})
    save_alone(folder / ("step-" + std::to_string(step)), State(tiny_state(), step), step, step < 4 ? 3 : 1);
  EXPECT_EQ(early, 0);
  EXPECT_EQ(removed, 3);
}

std::binary_semaphore may_publish{0};

void wait_to_publish(const char* name) noexcept {
  if (std::string_view(name) == "checkpoint.publish") may_publish.acquire();
}

TEST(Disks, AnErrorOfARankThatWaitsForTheEndMayPass) {
  const TemporaryFolder folder;
  fail_point_hook = wait_to_publish;
  const auto errors = run_world(2, [&](Session& session) {
    const auto rank = static_cast<std::size_t>(session.topology().rank);
    const State state(tiny_state(), 1, rank, 2);
    Saver saver;
    SaveOptions options;
    options.path = folder / "one";
    ASSERT_TRUE(begin_save(saver, &session, options, state.tensors()));
    take_all(saver, state);
    saver.start();
    if (rank == 1) {
      test::set_stat_error(EIO);
      EXPECT_FALSE(saver.wait_until(Clock::now() + std::chrono::milliseconds(300)));
      test::set_stat_error(0);
      may_publish.release();
    }
    EXPECT_EQ(thrown_by([&] { saver.wait_until(TimePoint::max()); }), "");
    meet(session);
  });
  fail_point_hook = nullptr;
  EXPECT_THAT(errors, Each(""));
}

// The kernel or the file system has no reservation of space, and exchanges no names.
TEST(Disks, OldOnesWork) {
  const TemporaryFolder folder;
  const Hooked hooked([&](const SystemCall& call) {
    if (call.is_done) return 0;
    return call.name == "fallocate" ? EOPNOTSUPP : call.name == "renameat2" ? EINVAL : 0;
  });
  for (const std::uint64_t seed : {1, 2}) save_alone(folder / "one", State(tiny_state(), seed), seed);
  Checkpoint checkpoint(folder / "one");
  verify(checkpoint);
  EXPECT_EQ(checkpoint.index().step, 2U);
}

}  // namespace
}  // namespace horo::checkpoint
