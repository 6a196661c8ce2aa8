#include "ring/cuda/device_memory.h"

#include <algorithm>

#include "horo/base/say.h"

namespace horo {
namespace {

constexpr std::size_t kLeastBytes = 1 << 20;

}  // namespace

std::byte* DeviceScratch::at_least(std::size_t bytes) {
  if (bytes <= bytes_ && data_ != nullptr) return data_;
  const std::size_t room = std::max({bytes, 2 * bytes_, kLeastBytes});
  all_.reserve(all_.size() + 1);
  void* memory = nullptr;
  device_.check(device_.api().allocate_blocking(&memory, room),
                say("allocating ", room, " bytes for ", what_for_).c_str());
  data_ = static_cast<std::byte*>(memory);
  all_.push_back(data_);
  bytes_ = room;
  return data_;
}

void DeviceScratch::free() noexcept {
  if (all_.empty()) return;
  device_.free_on([this](const CudaApi& api) {
    for (std::byte* const memory : all_) api.free_blocking(memory);
  });
  all_.clear();
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace horo
