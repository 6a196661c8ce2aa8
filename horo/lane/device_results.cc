#include "horo/lane/device_results.h"

#include <bit>
#include <utility>

namespace horo {
namespace {

constexpr std::size_t kLeastBytes = 4 << 10;

// Memory has few sizes, so that what is given back fits what is asked for: at most a quarter of it is not needed.
std::size_t rounded(std::size_t bytes) {
  if (bytes <= kLeastBytes) return kLeastBytes;
  const std::size_t step = std::bit_floor(bytes) / 4;
  return (bytes + step - 1) / step * step;
}

}  // namespace

DeviceResults::Place& DeviceResults::place_of(const CudaDevice& device) {
  return places_.try_emplace(device.number(), device).first->second;
}

DeviceResults::Memory DeviceResults::take(std::size_t bytes, DeviceStream& stream) {
  Place& place = place_of(stream.device());
  const std::size_t size = rounded(bytes);
  const auto found = place.spare.find(size);
  if (found == place.spare.end()) return {place.memory.add(size), size};
  const Spare spare = std::move(found->second);
  place.spare.erase(found);
  if (spare.read) spare.read->hold_up(stream.device(), stream.handle());
  return {spare.data, size};
}

std::shared_ptr<const DeviceEvent> DeviceResults::deliver(DeviceResult result) {
  if (result.memory == nullptr) return std::move(result.done);
  const CudaDevice device = result.done->device();
  const OnDevice here(device);
  Place& place = place_of(device);
  place.stream.copy_rows(result.rows, result.is_here);
  last_ = std::make_shared<const DeviceEvent>(device, place.stream.handle());
  place.spare.emplace(result.bytes, Spare{result.memory, last_});
  return last_;
}

void DeviceResults::drop(DeviceResult result) {
  if (result.memory == nullptr) return;
  // What is enqueued on the stream of the next result follows what has written this one.
  place_of(result.done->device()).spare.emplace(result.bytes, Spare{result.memory, nullptr});
}

}  // namespace horo
