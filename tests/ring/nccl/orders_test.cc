// The fake of NCCL alone: it reports collectives of two communicators that two devices have in opposite orders.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "ring/nccl/nccl_api.h"
#include "tests/ring/cuda/fake_cuda.h"
#include "tests/ring/nccl/fake_nccl.h"

namespace horo::test {
namespace {

constexpr int kOrderMembers = 2;

// The functions of the fake that a member calls.
struct FakeNccl {
  void* const library = ::dlopen(HORO_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  const CudaApi& cuda = *find<const CudaApi*()>(kCudaApiEntry)();

  template <class Function>
  Function* find(const char* name) const {
    auto* const found = reinterpret_cast<Function*>(::dlsym(library, name));
    if (found == nullptr) std::abort();
    return found;
  }
  NcclId make_id() const {
    NcclId id;
    EXPECT_EQ(find<int(NcclId*)>("ncclGetUniqueId")(&id), kNcclSuccess);
    return id;
  }
  FakeNcclCounts counts() const {
    FakeNcclCounts counts{};
    find<decltype(fake_nccl_counts)>("fake_nccl_counts")(&counts);
    return counts;
  }
  // Waits until the call is no longer in progress.
  void finish(NcclComm comm) const {
    int result = kNcclInProgress;
    while (result == kNcclInProgress) find<int(NcclComm, int*)>("ncclCommGetAsyncError")(comm, &result);
    EXPECT_EQ(result, kNcclSuccess);
  }
  NcclComm connect(const NcclId& id, int member) const {
    NcclComm comm = nullptr;
    NcclConfig config;
    config.is_blocking = 0;
    find<int(NcclComm*, int, NcclId, int, NcclConfig*)>("ncclCommInitRankConfig")(&comm, kOrderMembers, id, member,
                                                                                  &config);
    finish(comm);
    return comm;
  }
  void sum(NcclComm comm, void* memory, CudaStream stream) const {
    find<int(const void*, void*, std::size_t, NcclType, NcclOp, NcclComm, CudaStream)>("ncclAllReduce")(
        memory, memory, 1, NcclType::kInt32, NcclOp::kSum, comm, stream);
    finish(comm);
  }
};

// What the members do together.
struct Meeting {
  std::array<NcclId, 2> ids;  // of the communicators
  std::array<std::promise<void>, kOrderMembers> enqueued = {};
  std::shared_future<void> all_have = {};
};

// Each member has a device, and two communicators: it has a collective of one enqueued and then one of the other. A
// member with `is_first_last` does it in the other order. They are aborted, as opposite orders never end.
void run_member(const FakeNccl& nccl, Meeting& meeting, int member, bool is_first_last) {
  ASSERT_EQ(nccl.cuda.enter(member), 0);
  const std::array<NcclComm, 2> comms{nccl.connect(meeting.ids[0], member), nccl.connect(meeting.ids[1], member)};
  void* const memory = nccl.find<decltype(fake_cuda_allocate)>("fake_cuda_allocate")(4);
  const CudaStream stream = nccl.find<decltype(fake_cuda_stream)>("fake_cuda_stream")(false);
  nccl.sum(comms[is_first_last ? 1 : 0], memory, stream);
  nccl.sum(comms[is_first_last ? 0 : 1], memory, stream);
  meeting.enqueued[static_cast<std::size_t>(member)].set_value();
  meeting.all_have.wait();
  {
    // At once: an abort waits for the operations of the other communicator that come before its own on the stream.
    std::vector<std::jthread> aborts;
    auto* const abort = nccl.find<int(NcclComm)>("ncclCommAbort");
    for (const NcclComm comm : comms) aborts.emplace_back([abort, comm] { abort(comm); });
  }
  EXPECT_EQ(nccl.cuda.stream_destroy(stream), 0);
  nccl.find<decltype(fake_cuda_free)>("fake_cuda_free")(memory);
  nccl.cuda.leave();
}

std::int64_t cycles_of(bool is_opposite) {
  const FakeNccl nccl;
  int devices = 0;
  std::array<char, 100> why{};
  EXPECT_EQ(nccl.cuda.start(&devices, why.data(), why.size()), 0);
  const FakeNcclCounts before = nccl.counts();
  Meeting meeting{{nccl.make_id(), nccl.make_id()}};
  std::promise<void> all;
  meeting.all_have = all.get_future().share();
  {
    std::vector<std::jthread> members;
    for (int member = 0; member < kOrderMembers; ++member) {
      members.emplace_back([&, member] { run_member(nccl, meeting, member, is_opposite && member == 1); });
    }
    for (auto& one : meeting.enqueued) one.get_future().wait();
    all.set_value();
  }
  EXPECT_EQ(nccl.counts().comms, before.comms);
  return nccl.counts().cycles - before.cycles;
}

TEST(FakeNcclOrders, ThatAreOppositeOnTwoDevicesAreReported) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(cycles_of(true), 1);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("fake NCCL: a cycle of orders: device"), std::string::npos);
}

TEST(FakeNcclOrders, ThatAreEqualAreNot) {
  EXPECT_EQ(cycles_of(false), 0);
}

}  // namespace
}  // namespace horo::test
