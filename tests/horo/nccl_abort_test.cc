// Collectives of NCCL that never end, and connections that are never made: an abort of one rank ends them on all ranks,
// within a deadline, and nothing is left. HORO_FAKE_NCCL_ABORTS=1000 does it so often; tools/gpu_proof aborts runs
// that.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/effort.h"
#include "tests/horo/device_calls.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using testing::Each;
using testing::HasSubstr;

constexpr int kAbortRanks = 3;
constexpr int kAbortWorks = 4;
constexpr std::chrono::seconds kAbortDeadline{10};  // of what takes milliseconds, on a machine that is busy

int aborts_to_run() {
  const char* const text = std::getenv("HORO_FAKE_NCCL_ABORTS");
  return text == nullptr ? test::effort(12) : std::atoi(text);
}

std::ptrdiff_t entries_in(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

// What a session may leave behind.
struct Rests {
  std::ptrdiff_t threads = entries_in("/proc/self/task"), descriptors = entries_in("/proc/self/fd");
  FakeCudaCounts cuda = device_counts();
  FakeNcclCounts nccl = nccl_counts();
};

void expect_nothing_is_left(const Rests& before, const std::string& what) {
  Rests after;
  // A thread that was joined may be in the list for a moment.
  for (const auto until = Clock::now() + 5s; after.threads > before.threads && Clock::now() < until;) after = Rests();
  EXPECT_LE(after.threads, before.threads) << what;
  EXPECT_LE(after.descriptors, before.descriptors) << what;
  EXPECT_EQ(after.cuda.events, before.cuda.events) << what;
  EXPECT_EQ(after.cuda.streams, before.cuda.streams + kAbortRanks) << what << ": those of the test";
  EXPECT_EQ(after.cuda.allocated, before.cuda.allocated) << what;
  EXPECT_EQ(after.cuda.pinned, before.cuda.pinned) << what;
  EXPECT_EQ(after.nccl.comms, before.nccl.comms) << what;
}

// One after the other, so that each is a collective of its own; the last one is not done. Returns on the aborting rank,
// which has waited for a short time, whether it has ended after all.
bool submit_until_stuck(Session& session, bool is_aborting) {
  meet(session);  // no rank is at its start when another one aborts
  const CudaStream stream = make_stream();
  std::vector<std::unique_ptr<DeviceMemory>> memories;
  std::shared_ptr<Work> work;
  const Duration patience = is_aborting ? Duration(20ms) : kAbortDeadline;
  bool is_issued = true;
  for (int i = 0; i < kAbortWorks && is_issued; ++i) {
    memories.push_back(std::make_unique<DeviceMemory>(stream, 4'000));
    work = submit_sum(session, "weights " + std::to_string(i), *memories.back(), stream);
    is_issued = session.wait_stream(std::span(&work, 1), session.topology().rank, stream, Clock::now() + patience);
  }
  EXPECT_TRUE(is_issued || is_aborting) << "the end of the session wakes those that wait";
  const bool has_ended = is_aborting && session.wait(std::span(&work, 1), Clock::now() + 1ms);
  if (is_aborting) session.abort("the test ends it");
  EXPECT_TRUE(session.wait(std::span(&work, 1), Clock::now() + kAbortDeadline));
  if (!has_ended) work->outcome();
  return has_ended;
}

TEST(NcclAborts, EndWhatNeverEndsOnAllRanksAndLeaveNothing) {
  // All members are stuck, or one: the others wait for its bytes. -1: in ncclCommInit; 1 and 2: in the collectives that
  // connect them.
  constexpr std::array kStuck{"1", "3", "6", "2@0", "3@1", "6@2", "-1", "-1@1"};
  EXPECT_THAT(run_nccl(kAbortRanks,
                       [](Session& session) {
                         on_device(session, call_of(CollectiveKind::kAllReduce, session, 1), session.topology().rank);
                       }),
              Each(""));
  const int count = aborts_to_run();
  std::atomic<int> ended = 0;  // works that a busy machine has made late
  for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
    const char* const stuck = kStuck[static_cast<std::size_t>(i) % kStuck.size()];
    const int aborting = i / static_cast<int>(kStuck.size()) % kAbortRanks;
    const std::string what = "abort " + std::to_string(i) + " by rank " + std::to_string(aborting) + " of " + stuck;
    ::setenv("HORO_FAKE_NCCL_STUCK", stuck, 1);
    const Rests before;
    const TimePoint begin = Clock::now();
    const auto thrown = run_nccl(kAbortRanks, [&](Session& session) {
      ended += submit_until_stuck(session, session.topology().rank == aborting) ? 1 : 0;
      meet(session);  // which the aborted session refuses
    });
    EXPECT_THAT(thrown, Each(HasSubstr("the test ends it"))) << what;
    EXPECT_LT(Clock::now() - begin, kAbortDeadline) << what;
    expect_nothing_is_left(before, what);
  }
  EXPECT_LE(ended, 1 + count / 10) << "the others never end";
  ::unsetenv("HORO_FAKE_NCCL_STUCK");
}

}  // namespace
}  // namespace horo
