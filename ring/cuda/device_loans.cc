#include "ring/cuda/device_loans.h"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

namespace horo {

DeviceLoan::~DeviceLoan() {
  MutexLock lock(owner_->mutex_);
  try {
    owner_->places_.at(device_.number()).spare.emplace(bytes_, DeviceLoans::Spare{data_, written_, read_});
  } catch (const std::exception&) {  // no memory for the entry: the block stays unused
  }
}

void DeviceLoan::copy_to(void* out, std::size_t bytes, CudaStream stream) {
  const OnDevice here(device_);
  device_.check(device_.api().copy_on_device(out, data_, bytes, stream), "copying on the device");
  if (read_) read_->hold_up(device_, stream);  // so that the next event stands for that copy, too
  read_ = std::make_shared<const DeviceEvent>(device_, stream);
}

DeviceLoans::~DeviceLoans() {
  MutexLock lock(mutex_);
  for (const auto& [number, place] : places_) {
    for (const auto& [bytes, spare] : place.spare) {
      try {
        if (spare.written) spare.written->wait();
        if (spare.read) spare.read->wait();
      } catch (const std::exception&) {  // the device has failed, or this process was forked
      }
    }
  }
}

// Where no block is large enough, the next one has twice the size of the largest: all together have less than four
// times what was asked for at most. Where there is no memory for that, it has what is asked for.
std::byte* DeviceLoans::add_to(Place& place, std::size_t bytes, std::size_t& size) {
  size = rounded_bytes(bytes > place.largest ? std::max(bytes, 2 * place.largest) : bytes);
  try {
    return place.blocks.add(size);
  } catch (const std::runtime_error&) {
    if (size == rounded_bytes(bytes)) throw;
    size = rounded_bytes(bytes);
    return place.blocks.add(size);
  }
}

std::shared_ptr<DeviceLoan> DeviceLoans::take(const CudaDevice& device, std::size_t bytes, const DeviceStream& writer) {
  Spare spare;
  std::size_t size = 0;
  {
    MutexLock lock(mutex_);
    Place& place = places_.try_emplace(device.number(), device).first->second;
    if (const auto found = place.spare.lower_bound(bytes); found != place.spare.end()) {
      size = found->first;
      spare = std::move(found->second);
      place.spare.erase(found);
    } else {
      const OnDevice here(device);
      spare.data = add_to(place, bytes, size);
      place.largest = std::max(place.largest, size);
    }
  }
  for (const auto& event : {spare.written, spare.read}) {
    if (event) event->hold_up(writer.device(), writer.handle());
  }
  return std::make_shared<DeviceLoan>(shared_from_this(), device, spare.data, size);
}

}  // namespace horo
