// NcclMoves: collectives that move device memory unchanged, by one communicator of NCCL. Parts of one size are NCCL's
// all_gather; others are sent and received one by one, as one group of calls.
#pragma once

#include <cstddef>
#include <vector>

#include "ring/collective.h"
#include "ring/cuda/device_memory.h"
#include "ring/nccl/nccl_call.h"

namespace horo {

// One thread at a time. The calls outlive the object.
class NcclMoves {
 public:
  NcclMoves(NcclCalls& calls, const CudaDevice& device, int size, int rank)
      : calls_(calls),
        size_(static_cast<std::size_t>(size)),
        me_(static_cast<std::size_t>(rank)),
        copies_(device, "inputs that overlap their results (HORO_GPU_BACKEND=host needs none)") {}

  static bool takes(CollectiveKind kind);
  // DeviceGroup::enqueue()
  void enqueue(const Collective& c, DeviceStream& stream);
  // DeviceScratch::free()
  void free() noexcept { copies_.free(); }

  // The input: c.in, or a copy on the stream if the result would be written over values that are still to be sent.
  const std::byte* input_of(const Collective& c, std::size_t bytes, DeviceStream& stream);

 private:
  // Of c.in, or c.out: what goes to one member, or comes from it.
  struct Section {
    std::size_t offset = 0, bytes = 0;
  };
  using Sections = std::vector<Section>;  // by member

  bool is_root(const Collective& c) const { return static_cast<int>(me_) == c.root; }
  void broadcast(const Collective& c, DeviceStream& stream);
  void message(const Collective& c, DeviceStream& stream);
  void all_gather(const Collective& c, DeviceStream& stream);
  Sections sends_of(const Collective& c) const;
  Sections receives_of(const Collective& c) const;
  void exchange(const Collective& c, DeviceStream& stream);

  NcclCalls& calls_;
  const std::size_t size_, me_;
  DeviceScratch copies_;
};

}  // namespace horo
