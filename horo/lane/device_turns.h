// DeviceTurns: the lanes of a rank enqueue collectives on devices one after the other, in the order of their releases.
// That order is the same on all ranks, so the communicators of one device cannot wait for each other in a cycle. All of
// them use one stream for each device.
#pragma once

#include <cstdint>
#include <map>

#include "horo/base/mutex.h"
#include "ring/cuda/cuda_device.h"

namespace horo {

class DeviceTurns {
 public:
  // A turn, from 1 on, for a job that is given to its lane now. The engine's thread.
  std::uint64_t add();
  // Whether there was a turn.
  bool is_used();
  // Waits for turns end with ShutDown. Any thread.
  void stop();

  // Holds this turn while it lives. A lane's thread.
  class Turn {
   public:
    // Blocks until all turns before have ended. Throws ShutDown.
    Turn(DeviceTurns& turns, std::uint64_t number);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // The stream of all collectives of this device.
    DeviceStream& stream_of(const CudaDevice& device) const;

   private:
    DeviceTurns& turns_;
  };

 private:
  Mutex mutex_;
  CondVar changed_;
  std::uint64_t given_ GUARDED_BY(mutex_) = 0, ended_ GUARDED_BY(mutex_) = 0;
  bool is_stopped_ GUARDED_BY(mutex_) = false;
  std::map<int, DeviceStream> streams_;  // by device; of the thread whose turn it is
};

}  // namespace horo
