#include "ring/cuda/device_memory.h"

#include <algorithm>
#include <bit>

#include "horo/base/say.h"

namespace horo {
namespace {

constexpr std::size_t kLeastBytes = 1 << 20, kLeastLent = 4 << 10;

}  // namespace

std::size_t rounded_bytes(std::size_t bytes) {
  if (bytes <= kLeastLent) return kLeastLent;
  const std::size_t step = std::bit_floor(bytes) / 4;
  return (bytes + step - 1) / step * step;
}

std::byte* DeviceBlocks::add(std::size_t bytes) {
  blocks_.reserve(blocks_.size() + 1);
  void* memory = nullptr;
  device_.check(device_.api().allocate_blocking(&memory, bytes),
                say("allocating ", bytes, " bytes for ", what_for_).c_str());
  blocks_.push_back(static_cast<std::byte*>(memory));
  return blocks_.back();
}

void DeviceBlocks::free() noexcept {
  if (blocks_.empty()) return;
  device_.free_on([this](const CudaApi& api) {
    for (std::byte* const memory : blocks_) api.free_blocking(memory);
  });
  blocks_.clear();
}

std::byte* DeviceScratch::at_least(std::size_t bytes) {
  if (bytes <= bytes_ && data_ != nullptr) return data_;
  const std::size_t room = std::max({bytes, 2 * bytes_, kLeastBytes});
  data_ = blocks_.add(room);
  bytes_ = room;
  return data_;
}

void DeviceScratch::free() noexcept {
  blocks_.free();
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace horo
