/* Process sets, and joins. */
#ifndef HORO_C_SET_H
#define HORO_C_SET_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A process set, as seen by this rank. */
typedef struct {
  uint32_t struct_bytes;
  int32_t rank; /* of this rank inside the set; -1: not a member */
  int32_t size;
  const int32_t* ranks; /* world ranks, ascending; valid until this thread's next horo call, as is name */
  const char* name;
} horo_set_info;

/* Adds a process set of these world ranks; all ranks of the world make the same call. Returns a work (> 0) that ends
 * with the set's number (horo_result.counts[0], from 1; never reused). name null: "process set <number>". Fails with
 * HORO_INVALID_ARGUMENT if a set of the same ranks exists (the world, set 0, included; in an elastic job the work fails
 * with HORO_MISMATCH), or if there are HORO_MAX_PROCESS_SETS sets. */
HORO_API int64_t horo_add_set(horo_session* session, const int32_t* ranks, size_t count, const char* name);
/* The same with flags, equal on all ranks. HORO_SET_SHRINKS: the set goes on with the members that are left of an
 * elastic job, as the world does; else it fails with HORO_PEER_LOST when a member is lost. HORO_SET_BY_MEMBERS: the
 * members alone make the call, and horo_remove_set. They find each other by the name, which is not null, and differs
 * from those of all such sets that exist; sets of the same ranks may exist. Members that give different ranks or flags
 * get HORO_MISMATCH, and so does a set beyond HORO_MAX_PROCESS_SETS or of a name that exists. Each costs a thread. */
enum { HORO_SET_SHRINKS = 1, HORO_SET_BY_MEMBERS = 2 };
HORO_API int64_t horo_add_set_with(horo_session* session, const int32_t* ranks, size_t count, const char* name,
                                   uint32_t flags);
/* Removes the set; the ranks that had to add it make the same call, not those that have joined since. Pending
 * submissions of the set fail, and the work ends when no work of the set is in flight on this rank. */
HORO_API int64_t horo_remove_set(horo_session* session, uint32_t set);
HORO_API int32_t horo_get_set(horo_session* session, uint32_t set, horo_set_info* info);
/* Announces that this rank has no more data in this set. Returns a work that ends when all members have joined. Until
 * then this rank must not submit to the set. All_reduces and barriers of the other members continue without it (an
 * average still divides by the size of the set); their other collectives in the set fail. */
HORO_API int64_t horo_join(horo_session* session, uint32_t set);

#ifdef __cplusplus
}
#endif
#endif /* HORO_C_SET_H */
