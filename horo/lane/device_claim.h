// DeviceClaim: the right of a job's session to have NCCL on a device. Sessions of several jobs in one process enqueue
// their collectives in orders of their own, which may differ between ranks: then none of them would ever end. So one
// job at a time has the right.
#pragma once

#include <string>

namespace horo {

class DeviceClaim {
 public:
  // Takes the right, unless another job has it. job: its name and address, the same for all of its ranks in this
  // process. Any thread.
  DeviceClaim(const std::string& job, int device);
  // Gives it back, if this is the last one of the job.
  ~DeviceClaim();
  DeviceClaim(const DeviceClaim&) = delete;
  DeviceClaim& operator=(const DeviceClaim&) = delete;

  bool is_held() const { return is_held_; }

 private:
  const int device_;
  bool is_held_;
};

}  // namespace horo
