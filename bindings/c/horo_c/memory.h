/* Memory of the caller in which collectives are fastest, places in buckets, hashes. */
#ifndef HORO_C_MEMORY_H
#define HORO_C_MEMORY_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory for the caller. With HORO_TRANSPORT=shm or auto the ranks of a host map one another's memory of this kind, so
 * tensors in it are reduced in place; others are copied first. At least `bytes` at *data, aligned to 64 bytes, with
 * undefined contents; a forked child must not touch it. May block while the kernel maps pages; null on failure. */
typedef struct horo_memory horo_memory;
HORO_API horo_memory* horo_allocate(horo_session* session, uint32_t set, uint64_t bytes, void** data);
/* May also be called after horo_free() of the session; null has no effect. Works that use it must have ended. */
HORO_API void horo_free_memory(horo_memory* memory);

/* Known plans: tensors that travel in one bucket, step after step (horo_tensor_spec.stepwise). If they are reduced in
 * place, and are contiguous in the order of the bucket, they are neither packed nor unpacked. */
typedef struct {
  uint32_t struct_bytes;
  uint32_t plan;   /* 0: the tensor is in no known plan that this rank uses; the other fields are 0 */
  uint64_t offset; /* of the tensor in the plan's bucket */
  uint64_t bytes;  /* of the bucket */
} horo_place;
/* Changes whenever the result of horo_get_places may change, usually after a horo_step_end. */
HORO_API int64_t horo_plans_version(horo_session* session);
/* Writes the places of the tensors of these works, ended or not. `places`: structs of places[0].struct_bytes each. */
HORO_API int32_t horo_get_places(horo_session* session, const int64_t* works, size_t count, horo_place* places);

/* hashes[i] becomes the hash of sizes[i] bytes at data[i]: equal on all processors; inputs of equal size that differ
 * in one bit have different hashes. Not for untrusted input. Needs no session, reads all of the memory. */
HORO_API int32_t horo_hash_many(const void* const* data, const uint64_t* sizes, size_t count, uint64_t* hashes);

#ifdef __cplusplus
}
#endif
#endif /* HORO_C_MEMORY_H */
