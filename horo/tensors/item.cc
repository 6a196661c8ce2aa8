#include "horo/tensors/item.h"

namespace horo {

std::size_t bytes_of(std::span<const Item> items) {
  std::size_t bytes = 0;
  for (const Item& item : items) bytes += item.bytes;
  return bytes;
}

std::byte* contiguous_memory(std::span<const Item> items) {
  std::byte* first = nullptr;
  const std::byte* next = nullptr;
  for (const Item& item : items) {
    if (item.bytes == 0) continue;
    auto* const out = static_cast<std::byte*>(item.submission.out);
    if (item.submission.in != out || (next != nullptr && out != next)) return nullptr;
    if (first == nullptr) first = out;
    next = out + item.bytes;
  }
  return first;
}

}  // namespace horo
