// NcclGroup: collectives of device memory by NCCL.
//
// Moves, integer sums and the like, whose result does not depend on an order, and sums in any order (Order::kFast) are
// NCCL's own. A canonical sum is an exchange of shards, one kernel that adds the shards of all members in the canonical
// tree (CudaApi::reduce), and an exchange of the sums: the bits of the host's groups.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "horo/base/time.h"
#include "ring/cuda/device_group.h"
#include "ring/cuda/device_memory.h"
#include "ring/nccl/nccl_api.h"

namespace horo {

struct NcclMembers {
  int size = 0;
  int rank = 0;                              // index of this member
  bool has_kernels = false;                  // of all members
  NcclId id;                                 // made by one member for this group, equal on all
  std::chrono::milliseconds connect_time{};  // at most
};

// Called between two looks at a call of NCCL that has not ended. Throws to give it up.
using Pause = std::function<void(Duration)>;

// Connects the members, with the device of this stream: NCCL does so in ncclCommInit, and in collectives of a few
// bytes, which run on the stream; nothing else is on it. Blocks until that is done on this member, or `pause` throws.
// The device is the current one of this thread, as in all calls of the group. scratch: of the device, with memory for
// the first collective, so that a member that lacks it is known before the others wait for it; it outlives the group,
// whose abort() frees it. Throws std::runtime_error, with NCCL's words, or after connect_time.
std::unique_ptr<DeviceGroup> make_nccl_group(std::shared_ptr<const NcclApi> api, DeviceStream& stream,
                                             const NcclMembers& members, Pause pause, DeviceScratch& scratch);

}  // namespace horo
