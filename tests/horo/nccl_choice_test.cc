// How the members of a process set choose NCCL for their device tensors, or the way of the host.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "tests/horo/device_calls.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

using enum CollectiveKind;

TEST(Nccl, TwoRanksOnOneDeviceGoByWayOfTheHostOrAreToldWhatToDo) {
  const auto share_a_device = [](Session& session) {
    on_device(session, call_of(kAllReduce, session, 10), 0);
    meet(session);
  };
  Config config = on_fake_nccl();
  EXPECT_THAT(run_nccl(2, share_a_device, config),
              Each(AllOf(HasSubstr("HORO_GPU_BACKEND=nccl: ranks 0 and 1 use one GPU, which NCCL refuses"),
                         HasSubstr("torch.cuda.set_device(horo.local_rank())"))));
  config.gpu_backend = "auto";
  EXPECT_THAT(run_nccl(2, share_a_device, config), Each(""));
}

// Where it cannot: one member in ncclCommInit, or at its first collective.
class NcclConnections : public testing::TestWithParam<std::pair<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Nccl, NcclConnections,
                         testing::Values(std::pair("HORO_FAKE_NCCL_UNREACHABLE", "ncclCommInitRankConfig"),
                                         std::pair("HORO_FAKE_NCCL_UNCONNECTED", "ncclAllGather")));

TEST_P(NcclConnections, ThatAMemberCannotMakeLeaveTheWayOfTheHostOrTellWhy) {
  const auto [variable, call] = GetParam();
  Config config = on_fake_nccl();
  config.gpu_backend = "auto";
  config.deadline = 250ms;
  ::setenv(variable, "1", 1);
  const auto once = [](Session& session) { expect_bits_of_host(session, call_of(kAllReduce, session, 100)); };
  EXPECT_THAT(run_nccl(3, once, config), Each(""));
  config.gpu_backend = "nccl";
  const auto thrown = run_nccl(3, once, config);
  ::unsetenv(variable);
  EXPECT_THAT(thrown, Each(HasSubstr(std::string("HORO_GPU_BACKEND=nccl: rank 1: cuda:1: ") + call)));
}

// Its members cannot be connected later, when the others have gone on.
TEST(Nccl, AllMembersAreConnectedByTheFirstCollective) {
  const auto thrown = run_nccl(3, [](Session& session) {
    expect_bits_of_host(session, call_of(kBroadcast, session, 100));
    meet(session);
    if (session.topology().rank == 0) ::setenv("HORO_FAKE_NCCL_UNCONNECTED", "1", 1);
    meet(session);
    expect_bits_of_host(session, call_of(kAllReduce, session, 20'000));
    meet(session);
  });
  ::unsetenv("HORO_FAKE_NCCL_UNCONNECTED");
  EXPECT_THAT(thrown, Each(""));
}

TEST(Nccl, SessionsOfTwoJobsInOneProcessDoNotBothHaveADevice) {
  const auto once = [](Session& session) { expect_bits_of_host(session, call_of(kAllReduce, session, 100)); };
  Config other = on_fake_nccl();
  other.job = "other";
  const auto thrown = run_nccl(2, [&](Session& session) {
    once(session);
    meet(session);
    if (session.topology().rank == 0) {
      EXPECT_THAT(run_nccl(2, once, other), Each(HasSubstr("another session of this process has NCCL on cuda:")));
      other.gpu_backend = "auto";
      EXPECT_THAT(run_nccl(2, once, other), Each(""));
      EXPECT_THAT(run_nccl(1, once, other), Each(""));
    }
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
  other.gpu_backend = "nccl";
  EXPECT_THAT(run_nccl(2, once, other), Each(""));
}

TEST(Nccl, AnOldOrMissingLibraryIsNamed) {
  const auto call = [](Session& session) { on_device(session, call_of(kAllReduce, session, 10), 0); };
  Config config = on_fake_nccl();
  ::setenv("HORO_FAKE_NCCL_VERSION", "21705", 1);
  EXPECT_THAT(run_nccl(1, call, config), Each(HasSubstr("it is NCCL 2.17.5, and horo needs 2.27.3 or newer")));
  ::unsetenv("HORO_FAKE_NCCL_VERSION");
  ::setenv("NCCL_COMM_BLOCKING", "1", 1);
  EXPECT_THAT(run_nccl(1, call, config), Each(HasSubstr("NCCL_COMM_BLOCKING=1 makes its calls wait")));
  ::unsetenv("NCCL_COMM_BLOCKING");
  config.nccl_library = "/nowhere/libnccl.so.2";
  EXPECT_THAT(run_nccl(1, call, config), Each(HasSubstr("or name its libnccl.so.2 in HORO_NCCL_LIBRARY")));
}

}  // namespace
}  // namespace horo
