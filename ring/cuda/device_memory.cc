#include "ring/cuda/device_memory.h"

#include <algorithm>

#include "horo/base/say.h"

namespace horo {
namespace {

constexpr std::size_t kLeastBytes = 1 << 20;

}  // namespace

std::byte* DeviceScratch::at_least(std::size_t bytes) {
  if (bytes <= bytes_ && data_ != nullptr) return data_;
  free();
  const std::size_t room = std::max(bytes, kLeastBytes);
  void* memory = nullptr;
  device_.check(device_.api().allocate_blocking(&memory, room),
                say("allocating ", room, " bytes for buckets (HORO_BUCKET_BYTES)").c_str());
  data_ = static_cast<std::byte*>(memory);
  bytes_ = room;
  return data_;
}

void DeviceScratch::free() noexcept {
  if (data_ == nullptr) return;
  device_.free_on([this](const CudaApi& api) { api.free_blocking(data_); });
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace horo
