// DeviceGroup: ranks, each with one device, that run collectives of device memory on streams.
#pragma once

#include "horo/base/counters.h"
#include "ring/collective.h"
#include "ring/cuda/cuda_device.h"

namespace horo {

// One thread at a time. Functions but abort() and free() throw std::runtime_error (an error of CUDA or of a library, by
// name), PeerLost of an unknown rank (an error of the library's network, which the end of a rank may have caused) and
// ShutDown (the pause that the group was given).
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;

  virtual const CudaDevice& device() const = 0;
  // Whether enqueue() runs collectives like this one. Looks at nothing but what is equal on all members.
  virtual bool takes(const Collective& collective) const = 0;
  // Enqueues this member's part on the stream, and returns. The buffers are of device(), and in use until what is on
  // the stream by then is done. All members make the same calls in the same order.
  virtual void enqueue(const Collective& collective, DeviceStream& stream) = 0;
  // Throws what was found since the last call, such as a peer that is not reached any more.
  virtual void check() const = 0;
  // What is on the device is done here: returns when the other members need nothing more of this one. abort() follows.
  virtual void finalize() = 0;
  // Ends what the library has on the device, without its results. Only free() follows.
  virtual void abort() noexcept = 0;
  // What the streams of enqueue() had is done: frees the group's memory on the device.
  virtual void free() noexcept = 0;
  // The bytes that this member sends and receives in all that was enqueued, as far as it can know them. No frames.
  virtual Traffic traffic() const = 0;
  // The name of the algorithm of enqueue(), for logs. The text lives as long as the process.
  virtual std::string_view algorithm(const Collective& collective) const = 0;
};

}  // namespace horo
