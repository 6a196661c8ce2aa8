#include "horo/lane/device_turns.h"

#include "horo/base/error.h"

namespace horo {

std::uint64_t DeviceTurns::add() {
  MutexLock lock(mutex_);
  return ++given_;
}

bool DeviceTurns::is_used() {
  MutexLock lock(mutex_);
  return given_ > 0;
}

void DeviceTurns::stop() {
  MutexLock lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

DeviceTurns::Turn::Turn(DeviceTurns& turns, std::uint64_t number) : turns_(turns) {
  MutexLock lock(turns.mutex_);
  while (!turns.is_stopped_ && turns.ended_ + 1 != number) turns.changed_.wait(turns.mutex_);
  if (turns.is_stopped_) throw ShutDown("the collectives of this rank were stopped before a device's next one");
}

DeviceTurns::Turn::~Turn() {
  MutexLock lock(turns_.mutex_);
  ++turns_.ended_;
  turns_.changed_.notify_all();
}

DeviceStream& DeviceTurns::Turn::stream_of(const CudaDevice& device) const {
  return turns_.streams_.try_emplace(device.number(), device).first->second;
}

}  // namespace horo
