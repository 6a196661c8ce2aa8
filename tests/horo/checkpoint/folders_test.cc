// Folders of checkpoints: what of them is replaced, given back, removed, locked and left alone.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "horo/checkpoint/catalog.h"
#include "horo/checkpoint/staging.h"
#include "tests/horo/checkpoint/states.h"
#include "tests/horo/worlds.h"

namespace horo::checkpoint {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr const char* kOldName = ".old-last-0123456789abcdef";

State one_tensor(std::uint64_t seed) {
  return State({{"a", "float32", {100, 3}}}, seed);
}

std::vector<std::string> names_at(const fs::path& folder) {
  return names_in(open_folder(folder.string(), true));
}

void make_old_folder(const fs::path& folder) {
  const timespec times[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, folder.c_str(), times, 0), 0);
}

TEST(Folders, ACheckpointThatLostItsNameGetsItBackWhenTheFolderIsLocked) {
  const TemporaryFolder folder;
  save_alone(folder / "last", one_tensor(1), 7);
  fs::rename(folder / "last", folder / kOldName);
  Saver().lock(folder.path().string());
  EXPECT_EQ(Checkpoint(folder / "last").index().step, 7U);
  EXPECT_THAT(names_at(folder.path()), UnorderedElementsAre(".lock", "last"));
}

TEST(Folders, ACheckpointThatWasReplacedIsRemovedWhenTheNewOneIsThere) {
  const TemporaryFolder folder;
  save_alone(folder / "last", one_tensor(1), 7);
  fs::rename(folder / "last", folder / kOldName);
  fs::copy(folder / kOldName, folder / "last");
  save_alone(folder / "other", one_tensor(2), 8);
  EXPECT_THAT(names_at(folder.path()), UnorderedElementsAre(".lock", "last", "other"));
}

TEST(Folders, AJobThatReplacesACheckpointIsNotDisturbed) {
  const TemporaryFolder folder;
  save_alone(folder / "last", one_tensor(1), 7);
  fs::rename(folder / "last", folder / kOldName);
  const SaveFolder running = make_save_folder(place_of(folder / "last"));
  remove_leftovers(running.parent);
  EXPECT_THAT(names_at(folder.path()), UnorderedElementsAre(".lock", kOldName, running.temporary_name));
}

TEST(Folders, ASaveThatWaitsLongForItsRanksKeepsItsFolder) {
  const TemporaryFolder folder;
  const SaveFolder running = make_save_folder(place_of(folder / "one"));
  make_old_folder(folder / running.temporary_name);
  remove_leftovers(running.parent);
  EXPECT_TRUE(fs::exists(folder / running.temporary_name));
}

TEST(Folders, AFolderWithAUsersFilesIsNotReplacedAndNotRemoved) {
  const TemporaryFolder folder;
  for (const char* name : {"mine", "step-1"}) {
    fs::create_directory(folder / name);
    for (const char* file : {"index.json", "notes"}) write_file(folder / (std::string(name) + "/" + file), "x");
  }
  EXPECT_THAT(thrown_by([&] { save_alone(folder / "mine", one_tensor(1)); }), HasSubstr("it is not replaced"));
  save_alone(folder / "step-2", one_tensor(1), 2, 1);
  for (const char* name : {"mine", "step-1"})
    EXPECT_THAT(names_at(folder / name), UnorderedElementsAre("index.json", "notes"));
}

TEST(Folders, AnEmptyFolderIsReplaced) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "one");
  save_alone(folder / "one", one_tensor(1), 3);
  EXPECT_EQ(Checkpoint(folder / "one").index().step, 3U);
}

// As that of another user.
TEST(Folders, ALockThatCannotBeOpenedHoldsUpNoSaveThatDoesNotAskForIt) {
  const TemporaryFolder folder;
  fs::create_directory(folder / ".lock");
  save_alone(folder / "one", one_tensor(1), 3);
  EXPECT_EQ(Checkpoint(folder / "one").index().step, 3U);
}

TEST(Locks, TwoThatAskDoNotSeeEachOther) {
  const TemporaryFolder folder;
  const OpenFolder open = open_folder(folder.path().string(), true);
  {
    const Fd holder = create_file(open, "x");
    ASSERT_EQ(try_lock(holder), LockResult::kLocked);
    EXPECT_EQ(probe_lock(open_file(open, "x")), LockResult::kBusy);
  }
  const Fd one = open_file(open, "x"), other = open_file(open, "x");
  EXPECT_EQ(probe_lock(one), LockResult::kLocked);
  EXPECT_EQ(probe_lock(other), LockResult::kLocked);
}

TEST(Locks, ASaverThatUnlocksLetsAnotherOneIn) {
  const TemporaryFolder folder;
  Saver leaves, stays(std::chrono::milliseconds(0));
  leaves.lock(folder.path().string());
  EXPECT_THAT(thrown_by([&] { stays.lock(folder.path().string()); }), HasSubstr("another job writes checkpoints"));
  leaves.unlock();
  EXPECT_EQ(thrown_by([&] { stays.lock(folder.path().string()); }), "");
}

TEST(Locks, AHolderThatIsAboutToEndIsWaitedFor) {
  const TemporaryFolder folder;
  Saver leaves, comes(kTestDeadline);
  leaves.lock(folder.path().string());
  auto locked = std::async(std::launch::async, [&] { return thrown_by([&] { comes.lock(folder.path().string()); }); });
  EXPECT_EQ(locked.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  leaves.unlock();
  EXPECT_EQ(locked.get(), "");
}

TEST(Staging, AForkedChildDoesNotGetTheMemory) {
  StagingMemory memory;
  memory.reserve(1);
  std::ifstream maps("/proc/self/smaps");
  char begin[32];
  std::snprintf(begin, sizeof(begin), "%08zx-", reinterpret_cast<std::size_t>(memory.bytes().data()));
  std::string line;
  while (std::getline(maps, line) && !line.starts_with(begin)) {
  }
  while (std::getline(maps, line) && !line.starts_with("VmFlags:")) {
  }
  EXPECT_THAT(line, HasSubstr(" dc"));
}

}  // namespace
}  // namespace horo::checkpoint
