// The C ABI: memory for buckets, hashes of memory, and the places of tensors in the buckets of known plans.
#include <algorithm>

#include "bindings/c/handles.h"

using horo_c::check_struct;
using horo_c::checked;
using horo_c::guarded;

struct horo_memory {
  horo::Allocation allocation;
};

horo_memory* horo_allocate(horo_session* session, uint32_t set, uint64_t bytes, void** data) {
  horo_memory* memory = nullptr;
  guarded([&]() -> std::int32_t {
    if (data == nullptr) throw std::invalid_argument("data is a null pointer");
    memory = new horo_memory{checked(session).session.allocate(set, bytes)};
    *data = memory->allocation.data.get();
    return HORO_OK;
  });
  return memory;
}

void horo_free_memory(horo_memory* memory) {
  delete memory;
}

int32_t horo_hash_many(const void* const* data, const uint64_t* sizes, size_t count, uint64_t* hashes) {
  return guarded([&]() -> std::int32_t {
    if (count == 0) return HORO_OK;
    if (data == nullptr || sizes == nullptr || hashes == nullptr) {
      throw std::invalid_argument("horo_hash_many: data, sizes or hashes is a null pointer");
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (data[i] == nullptr && sizes[i] != 0) throw std::invalid_argument("horo_hash_many: a data pointer is null");
      hashes[i] = horo::hash_bytes({static_cast<const std::byte*>(data[i]), sizes[i]});
    }
    return HORO_OK;
  });
}

int64_t horo_plans_version(horo_session* session) {
  return guarded([&]() -> std::int64_t { return static_cast<std::int64_t>(checked(session).session.plans_version()); });
}

int32_t horo_get_places(horo_session* session, const int64_t* works, size_t count, horo_place* places) {
  return guarded([&]() -> std::int32_t {
    horo_session& s = checked(session);
    if (count == 0) return HORO_OK;
    if (works == nullptr) throw std::invalid_argument("works is a null pointer");
    check_struct(places, "horo_place");
    std::vector<std::shared_ptr<horo::Work>> found(count);
    for (std::size_t i = 0; i < count; ++i) found[i] = s.works.find(works[i]);
    const std::vector<horo::BucketPlace> all = s.session.places(found);
    const std::uint32_t stride = places->struct_bytes;
    auto* at = reinterpret_cast<std::byte*>(places);
    for (std::size_t i = 0; i < count; ++i, at += stride) {
      *reinterpret_cast<horo_place*>(at) = {stride, all[i].plan, all[i].offset, all[i].bytes};
    }
    return HORO_OK;
  });
}
