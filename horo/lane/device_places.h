// DevicePlaces: the memory that a collective of device tensors reads and writes, and the copies before and after it.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "horo/lane/job.h"
#include "ring/cuda/cuda_device.h"

namespace horo {

struct DevicePlaces {
  Buffer in, out;
  std::vector<CopyRow> rows_in = {}, rows_out = {};  // copies before and after it
  bool is_here = true;                               // all memory of the callers is of the group's device
  bool fits = true;                                  // the caller has memory of a device for the result
};

// Of one job.
struct DeviceSpace {
  const CudaDevice& device;  // of the group
  bool is_apart;             // the result is not written to the callers' memory, but for that of a broadcast's source
  std::function<std::byte*(std::size_t bytes)> take;  // memory of the device, of at least these bytes
};

// The memory of the tensors where it is one piece on the group's device, and may be written; else memory that is taken,
// at most once, with copies to it and from it. The size of a varying result is that of the collective's `out`.
DevicePlaces place_on(const DeviceSpace& space, const Job& job, const Participants& participants,
                      const Collective& collective);

}  // namespace horo
