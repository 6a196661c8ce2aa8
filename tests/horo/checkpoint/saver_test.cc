// Saves in the background: what is taken, skipped, given up, kept and removed.
#include "horo/checkpoint/saver.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <semaphore>

#include "horo/base/fail_point.h"
#include "horo/checkpoint/catalog.h"
#include "tests/effort.h"
#include "tests/horo/checkpoint/states.h"
#include "tests/horo/worlds.h"

namespace horo::checkpoint {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::vector<StateTensor> two_tensors() {
  return {{"a", "float32", {100, 3}}, {"b", "uint8", {5}}};
}

SaveOptions options_for(const std::string& path, std::uint64_t step = 1) {
  SaveOptions options;
  options.path = path;
  options.step = step;
  return options;
}

std::vector<std::string> names(const fs::path& folder) {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(folder)) all.push_back(entry.path().filename().string());
  return all;
}

// Begins, gives all parts and starts; the error of the end.
std::string whole_save(Saver& saver, Session* session, const SaveOptions& options, const State& state) {
  return thrown_by([&] {
    if (!begin_save(saver, session, options, state.tensors())) throw std::runtime_error("skipped");
    take_all(saver, state);
    saver.start();
    saver.wait_until(TimePoint::max());
  });
}

TEST(Savers, TheFileHasTheValuesOfTheCall) {
  const TemporaryFolder folder;
  State state(small_state(), 1);
  Saver saver;
  ASSERT_TRUE(begin_save(saver, nullptr, options_for(folder / "one"), state.tensors()));
  take_all(saver, state);
  state.clear();  // a step of training, right after the copy
  saver.start();
  saver.wait_until(TimePoint::max());
  Checkpoint checkpoint(folder / "one");
  load(checkpoint, nullptr, state.tensors());
  EXPECT_TRUE(state == State(small_state(), 1));
}

TEST(Savers, EachRankWritesAsMuch) {
  const TemporaryFolder folder;
  const auto errors = run_world(4, [&](Session& session) {
    const std::vector<StateTensor> forms{{"a", "float32", {1000, 100}}, {"b", "bfloat16", {999}}, {"c", "int64", {1}}};
    Saver saver;
    EXPECT_EQ(whole_save(saver, &session, options_for(folder / "one"), State(forms, 1)), "");
    EXPECT_NEAR(static_cast<double>(saver.progress().bytes_total), (400'000 + 1998 + 8) / 4., 400);
    meet(session);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Savers, AsManyStepsAsAreToBeKeptStay) {
  const TemporaryFolder folder;
  Saver saver;
  fs::create_directory(folder / "step-notes");
  for (std::uint64_t step = 1; step <= 6; ++step) {
    SaveOptions options = options_for(folder / ("step-" + std::to_string(step)), step);
    options.keep = 3;
    EXPECT_EQ(whole_save(saver, nullptr, options, State(two_tensors(), step)), "");
    if (step == 5) write_file(folder / "step-4/index.json", "");  // is not counted
  }
  EXPECT_THAT(names(folder.path()),
              UnorderedElementsAre(".lock", "step-notes", "step-3", "step-4", "step-5", "step-6"));
}

TEST(Savers, AFolderThatIsNoCheckpointIsNotReplaced) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "mine");
  write_file(folder / "mine/notes", "x");
  Saver saver;
  EXPECT_THAT(whole_save(saver, nullptr, options_for(folder / "mine"), State(two_tensors(), 1)),
              HasSubstr("mine exists, and is no checkpoint"));
  EXPECT_EQ(bytes_in_file(folder / "mine/notes"), "x");
  EXPECT_EQ(whole_save(saver, nullptr, options_for(folder / "other"), State(two_tensors(), 1)), "");
}

TEST(Savers, ASecondJobInAFolderIsRefusedByName) {
  const TemporaryFolder folder;
  SaveOptions options = options_for(folder / "step-1");
  options.locks = true;
  {
    Saver first;
    EXPECT_EQ(whole_save(first, nullptr, options, State(two_tensors(), 1)), "");
    Saver second(std::chrono::milliseconds(0));
    EXPECT_THAT(whole_save(second, nullptr, options, State(two_tensors(), 1)),
                AllOf(HasSubstr("another job writes checkpoints to " + folder.path().string()),
                      HasSubstr("process " + std::to_string(::getpid()))));
  }
  Saver third;
  EXPECT_EQ(whole_save(third, nullptr, options, State(two_tensors(), 1)), "");
}

void make_old(const fs::path& folder) {
  const timespec times[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, folder.c_str(), times, 0), 0);
}

TEST(Savers, WhatDeadJobsHaveLeftIsRemovedAndNoMore) {
  const TemporaryFolder folder;
  for (const char* name : {".tmp-step-1-0", ".del-step-0-0", ".tmp-step-3-live", ".tmp-mine"}) {
    fs::create_directory(folder / name);
    write_file(folder / (std::string(name) + "/part-00000-of-00001.safetensors"), "x");
  }
  write_file(folder / ".tmp-mine/notes", "of a user");
  const OpenFolder live = open_folder(folder / ".tmp-step-3-live", false);
  const Fd part = open_file(live, "part-00000-of-00001.safetensors");
  ASSERT_EQ(try_lock(part), LockResult::kLocked);
  for (const char* name : {".tmp-step-1-0", ".tmp-step-3-live", ".tmp-mine"}) make_old(folder / name);
  Saver saver;
  EXPECT_EQ(whole_save(saver, nullptr, options_for(folder / "step-4"), State(two_tensors(), 1)), "");
  EXPECT_THAT(names(folder.path()), UnorderedElementsAre(".lock", ".tmp-mine", ".tmp-step-3-live", "step-4"));
  EXPECT_THAT(names(folder / ".tmp-mine"), ElementsAre("notes"));
}

TEST(Savers, RanksThatDisagreeAreAllToldAlike) {
  const TemporaryFolder folder;
  const auto errors = run_world(3, [&](Session& session) {
    const bool is_other = session.topology().rank == 2;
    Saver saver;
    std::vector<StateTensor> forms = two_tensors();
    forms[0].shape[1] = is_other ? 4 : 3;
    const SaveOptions options = options_for(folder / "one");
    EXPECT_EQ(whole_save(saver, &session, options, State(forms, 1)),
              "rank 0 and rank 2 save different tensors: a is replicated float32[100, 3] on the one and replicated "
              "float32[100, 4] on the other");
    SaveOptions later = options;
    later.step = is_other ? 2 : 1;
    EXPECT_EQ(whole_save(saver, &session, later, State(two_tensors(), 1)),
              "rank 0 saves step 1 to one, and rank 2 step 2 to one");
    SaveOptions wrong = options;
    wrong.path = is_other ? "" : options.path;
    EXPECT_THAT(whole_save(saver, &session, wrong, State(two_tensors(), 1)), HasSubstr("rank 2: the checkpoint \"\""));
    SaveOptions elsewhere = options;
    if (is_other) elsewhere.path = folder / "nowhere/one";
    EXPECT_THAT(whole_save(saver, &session, elsewhere, State(two_tensors(), 1)),
                AllOf(HasSubstr("rank 2: "), HasSubstr("All ranks need the same folder")));
    State overlapping({{"s", "uint8", {9}, TensorKind::kSharded}}, 1);
    EXPECT_EQ(whole_save(saver, &session, options, overlapping), "rank 0 and rank 1 both have row 0 of s");
    State gap({{"s", "uint8", {9}, TensorKind::kSharded}}, 1, static_cast<std::size_t>(session.topology().rank), 4);
    gap.tensors()[0].ranges.resize(is_other ? 0 : 1);
    EXPECT_EQ(whole_save(saver, &session, options, gap), "no rank has row 6 of s, which is sharded");
    EXPECT_EQ(whole_save(saver, &session, options, State(two_tensors(), 1)), "");
    meet(session);
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(names(folder.path()), UnorderedElementsAre(".lock", "one"));
}

std::counting_semaphore<2> may_write{0};

void wait_to_write(const char* name) noexcept {
  if (std::string_view(name) == "checkpoint.written") may_write.acquire();
}

TEST(Savers, ASaveThatComesTooEarlyIsSkippedOnAllRanks) {
  const TemporaryFolder folder;
  fail_point_hook = wait_to_write;
  const auto errors = run_world(2, [&](Session& session) {
    const State state(two_tensors(), 1);
    Saver saver;
    ASSERT_TRUE(begin_save(saver, &session, options_for(folder / "one"), state.tensors()));
    take_all(saver, state);
    saver.start();
    EXPECT_FALSE(begin_save(saver, &session, options_for(folder / "two"), state.tensors()));
    EXPECT_TRUE(saver.progress().is_writing);
    EXPECT_FALSE(saver.wait_until(Clock::now()));
    may_write.release();
    EXPECT_TRUE(saver.wait_until(TimePoint::max()));
    meet(session);
  });
  fail_point_hook = nullptr;
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(names(folder.path()), UnorderedElementsAre(".lock", "one"));
}

class GivingUp : public testing::TestWithParam<int> {};  // the rank that gives up
INSTANTIATE_TEST_SUITE_P(Ranks, GivingUp, testing::Values(0, 1));

TEST_P(GivingUp, EndsTheSaveOnAllRanksWithTheReason) {
  const TemporaryFolder folder;
  const auto errors = run_world(3, [&](Session& session) {
    const bool gives_up = session.topology().rank == GetParam();
    const State state(two_tensors(), 1);
    Saver saver;
    ASSERT_TRUE(begin_save(saver, &session, options_for(folder / "one"), state.tensors()));
    if (gives_up) {
      saver.give_up("a rank has left the job");
    } else {
      take_all(saver, state);
      saver.start();
    }
    EXPECT_EQ(thrown_by([&] { saver.wait_until(TimePoint::max()); }), "a rank has left the job");
    EXPECT_EQ(whole_save(saver, &session, options_for(folder / "two"), state), "");
    meet(session);
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(names(folder.path()), UnorderedElementsAre(".lock", "two"));
}

TEST(Savers, ARankThatDoesNotStartItsPartGivesItUpAtTheEnd) {
  const TemporaryFolder folder;
  const auto errors = run_world(2, [&](Session& session) {
    const State state(two_tensors(), 1);
    Saver saver;
    ASSERT_TRUE(begin_save(saver, &session, options_for(folder / "one"), state.tensors()));
    if (session.topology().rank == 1) return;
    take_all(saver, state);
    saver.start();
    EXPECT_THAT(thrown_by([&] { saver.wait_until(TimePoint::max()); }), HasSubstr("begun and not started"));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Savers, WrongCallsAreToldByName) {
  const TemporaryFolder folder;
  const State state(two_tensors(), 1);
  Saver saver;
  EXPECT_THAT(thrown_by([&] { saver.start(); }), HasSubstr("no save was begun"));
  EXPECT_THAT(thrown_by([&] { saver.take(0, nullptr); }), HasSubstr("no save was begun"));
  ASSERT_TRUE(begin_save(saver, nullptr, options_for(folder / "one"), state.tensors()));
  EXPECT_EQ(thrown_by([&] { saver.wait_until(TimePoint::max()); }), "the save was begun, and not started");
  saver.take(1, state.tensors()[1].data);
  EXPECT_EQ(thrown_by([&] { saver.start(); }), "this rank has not given its part of a");
  EXPECT_EQ(thrown_by([&] { saver.take(1, state.tensors()[1].data); }), "b was taken before");
  EXPECT_EQ(thrown_by([&] { saver.take(0, nullptr); }), "the data of a is a null pointer");
  EXPECT_EQ(thrown_by([&] { saver.take(2, nullptr); }), "the save has 2 tensors, and no tensor 2");
  SaveOptions options = options_for(folder / "two");
  options.rest = "{\"nan\": NaN}";
  EXPECT_EQ(whole_save(saver, nullptr, options, state), "rank 0: rest is not JSON");
  State wrong(two_tensors(), 1);
  wrong.tensors()[1].name = "a";
  EXPECT_EQ(whole_save(saver, nullptr, options_for(folder / "two"), wrong), "rank 0: two tensors are named a");
  wrong.tensors()[1].name = "a\tb";
  EXPECT_THAT(whole_save(saver, nullptr, options_for(folder / "two"), wrong), HasSubstr("has a control character"));
  wrong.tensors()[1].name = "\xff";
  EXPECT_THAT(whole_save(saver, nullptr, options_for(folder / "two"), wrong), HasSubstr("is not UTF-8"));
  wrong.tensors()[1] = {"b", "quint8", {5}, TensorKind::kReplicated, {}, -1, nullptr};
  EXPECT_THAT(whole_save(saver, nullptr, options_for(folder / "two"), wrong), HasSubstr("of the type \"quint8\""));
}

TEST(Savers, LoadsAreRefusedByNameBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  save_alone(folder / "one", State(two_tensors(), 1));
  Checkpoint checkpoint(folder / "one");
  const auto error_of = [&](StateTensor second) {
    State state({{"b", "uint8", {5}}, std::move(second)}, 2);
    const std::string error = thrown_by([&] { load(checkpoint, nullptr, state.tensors()); });
    EXPECT_EQ(std::memcmp(state.tensors()[0].data, State({{"b", "uint8", {5}}}, 2).tensors()[0].data, 5), 0);
    return error;
  };
  EXPECT_EQ(error_of({"c", "uint8", {5}}), (folder / "one") + " has no tensor c");
  EXPECT_EQ(error_of({"a", "float32", {100, 4}}),
            "a is float32[100, 3] in " + (folder / "one") + ", and float32[100, 4] here");
  EXPECT_THAT(error_of({"a", "float64", {100, 3}}), HasSubstr("and float64[100, 3] here"));
}

// What is allocated, without the pages that malloc keeps for later, and the bytes of writable private mappings.
struct MemoryInUse {
  MemoryInUse() {
    const auto info = ::mallinfo2();
    heap = info.uordblks + info.hblkhd;
    std::ifstream file("/proc/self/statm");
    for (int field = 0; field < 6; ++field) file >> mapped;  // the sixth: data, in pages
    mapped *= static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  }
  std::size_t heap = 0, mapped = 0;
};

TEST(Savers, MemoryIsFlatOver200Saves) {
  const TemporaryFolder folder;
  const State state({{"a", "float32", {1 << 18}}}, 1);
  Saver saver;
  std::optional<MemoryInUse> early;
  const std::uint64_t saves = test::effort(200U);
  for (std::uint64_t step = 1; step <= saves; ++step) {
    SaveOptions options = options_for(folder / ("step-" + std::to_string(step)), step);
    options.keep = 2;
    ASSERT_EQ(whole_save(saver, nullptr, options, state), "");
    if (step == saves / 4) early.emplace();
  }
  const MemoryInUse late;
  EXPECT_LT(late.heap, early->heap + (16 << 10));
  // malloc makes an arena for some threads, and a sanitizer keeps what is freed. A copy that stays is 1 MiB a save.
  EXPECT_LT(late.mapped, early->mapped + (std::size_t{test::kSanitized ? 64 : 2} << 20));
  EXPECT_EQ(saver.progress().published, saves);
}

}  // namespace
}  // namespace horo::checkpoint
