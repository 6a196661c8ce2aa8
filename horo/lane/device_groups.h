// DeviceGroups: how the members of one process set, or two ranks with messages, run collectives of device tensors: by a
// DeviceGroup on the devices themselves, or by way of the host (Staging). They decide it at the first such collective,
// together.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "horo/lane/device_claim.h"
#include "horo/lane/job.h"
#include "horo/lane/stop_signal.h"
#include "ring/cuda/device_group.h"
#include "ring/cuda/device_memory.h"

namespace horo {

// The thread that runs the lane's tasks. config, counters and stop outlive it.
class DeviceGroups {
 public:
  // watch: called while a first call waits for the stream, on which other groups of the thread may be in flight.
  DeviceGroups(const Config& config, const Counters& counters, StopSignal& stop, std::function<void()> watch)
      : config_(config), counters_(counters), stop_(stop), watch_(std::move(watch)) {}

  // The group of all members of the set; null: these go by way of the host. `like`: the collective, which all members
  // run, on the stream. Its first call blocks until what is on the stream is done, and all members have made it. Throws
  // std::invalid_argument (HORO_GPU_BACKEND asks for what is not there), and what the host's group and
  // make_nccl_group() throw.
  DeviceGroup* of(const Participants& participants, const Collective& like, DeviceStream& stream);
  // DeviceGroup::check() and finalize().
  void check() const {
    if (group_) group_->check();
  }
  void finalize() {
    if (group_) group_->finalize();
  }
  bool are_any() const { return group_ != nullptr; }
  // DeviceGroup::abort(), and free() for all memory. No other call follows.
  void abort() noexcept {
    if (group_) group_->abort();
  }
  void free() noexcept {
    if (group_) group_->free();
    if (first_) first_->free();
    claim_.reset();
  }

 private:
  void decide(const Participants& participants, const Collective& like, DeviceStream& stream);

  const Config& config_;
  const Counters& counters_;
  StopSignal& stop_;
  const std::function<void()> watch_;
  bool is_decided_ = false;
  std::unique_ptr<DeviceClaim> claim_;    // of the group
  std::unique_ptr<DeviceScratch> first_;  // of the group, which may not connect: to free it waits for the device
  std::unique_ptr<DeviceGroup> group_;
};

}  // namespace horo
