// A translation unit of its own: where the compiler sees new and delete together, it warns of free() for memory of new.
#include "tests/horo/failing_new.h"

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace horo {

std::atomic<int>& good_allocations() {
  static constinit std::atomic<int> count{kAllGood};  // relaxed
  return count;
}

std::atomic<int>& bad_allocations() {
  static constinit std::atomic<int> count{1};  // relaxed
  return count;
}

int& good_allocations_here() {
  static constinit thread_local int count = -1;
  return count;
}

namespace {

bool is_our_thread() {
  char name[16] = {};
  return ::pthread_getname_np(::pthread_self(), name, sizeof(name)) == 0 && std::strncmp(name, "horo", 4) == 0;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (good_allocations_here() >= 0 && good_allocations_here()-- == 0) throw std::bad_alloc();
  if (good_allocations().load() > -bad_allocations().load() && is_our_thread()) {
    const int left = good_allocations().fetch_sub(1);
    if (left <= 0 && left > -bad_allocations().load()) throw std::bad_alloc();
  }
  bytes = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace
}  // namespace horo

void* operator new(std::size_t bytes) {
  return horo::allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return horo::allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
