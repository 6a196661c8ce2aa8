/* Sessions: joining and leaving the job, errors, topology, epochs. */
#ifndef HORO_C_SESSION_H
#define HORO_C_SESSION_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  uint32_t struct_bytes;
  int32_t rank, size;             /* in the world */
  int32_t local_rank, local_size; /* on the host of this rank */
  int32_t cross_rank, cross_size; /* among the ranks with this local_rank on all hosts */
  uint32_t epoch;
  int32_t min_size, is_homogeneous; /* least number of ranks of an elastic job, or 0; 1: all hosts have as many ranks */
} horo_topology;

HORO_API int32_t horo_abi_version(void);
HORO_API const char* horo_version(void);

/* Why the last failed call of this thread has failed; never null. The session may be null (a failed horo_init). */
HORO_API const char* horo_error_text(const horo_session* session);
/* The horo_status of that call, for calls that return pointers. */
HORO_API int32_t horo_error_status(const horo_session* session);
/* The rank that was lost first if the error is HORO_PEER_LOST; -1 if that rank is not known or for another error. */
HORO_API int32_t horo_error_origin(const horo_session* session);

/* "NAME=value" lines that this rank of horo run lacks, where its environment was cleared. Null: failed. Per thread. */
HORO_API const char* horo_lost_variables(void);
/* Joins the job that HORO_* variables describe (none: a world of one rank); settings are "HORO_NAME=value" strings that
 * take precedence over the environment. Blocks up to HORO_START_TIMEOUT_MS. Null on failure. */
HORO_API horo_session* horo_init(const char* const* settings, size_t count);
/* One all-gather among the ranks, before they are connected. */
#define HORO_EXCHANGE_BYTES 4096
typedef struct {
  uint32_t struct_bytes;
  int32_t rank, size;
  int32_t start; /* number of restarts by the launcher; blobs of two starts must not be mixed */
  int32_t timeout_ms;
  const void* mine; /* this rank's bytes, at most HORO_EXCHANGE_BYTES */
  uint64_t mine_bytes;
  void* all;           /* output: the bytes of rank r, at r * HORO_EXCHANGE_BYTES */
  uint64_t* all_bytes; /* output: their number, by rank */
  char* error;         /* output on failure: a null-terminated text */
  uint64_t error_bytes;
  int32_t origin; /* output on HORO_PEER_LOST: the first missing rank, or -1 */
} horo_exchange_call;
/* Returns HORO_OK, or a negative horo_status, with which horo_init_exchange then fails. May block up to timeout_ms. */
typedef int32_t (*horo_exchange)(void* user, horo_exchange_call* call);

/* horo_init for a launcher with a store of its own. `exchange` is called in the calling thread if HORO_ADDR is not set
 * and the ranks are on several hosts; it must not throw. Its participants are not authenticated, so ranks on several
 * hosts need HORO_KEY_FILE. */
HORO_API horo_session* horo_init_exchange(const char* const* settings, size_t count, horo_exchange exchange,
                                          void* user);
/* Leave the job in good order: works fail with HORO_SHUT_DOWN. Block for up to a second; callable again, by any thread.
 * After the last two a rank of an elastic job counts as lost if its exit code is not 0. horo_free also frees works. */
HORO_API int32_t horo_shutdown(horo_session* session);
HORO_API int32_t horo_shutdown_at_exit(horo_session* session);
HORO_API void horo_free(horo_session* session);
/* Ends the job on all ranks: their works fail with HORO_PEER_LOST, the number of this rank and the reason in a second.
 * horo_fail also tells the kind and place of the failure: an elastic job ends if all ranks fail alike. */
HORO_API int32_t horo_abort(horo_session* session, const char* reason);
HORO_API int32_t horo_fail(horo_session* session, const char* reason, const char* failure);
HORO_API int32_t horo_get_topology(const horo_session* session, horo_topology* topology);
/* Writes the ids of the present ranks, in their order; at most `count` of them. Returns the size of the world. The id
 * of a process is its rank at the start of the job. In an elastic job ranks and size change when a rank is lost: what
 * this function and horo_get_topology return belongs together if horo_topology.epoch is the same before and after. */
HORO_API int32_t horo_get_members(const horo_session* session, uint32_t* ids, size_t count);
/* Returns 1 if the host of this rank is drained, else 0: horo run ends the rank in `grace_s` seconds (an output, may be
 * null). It is to leave before (horo_shutdown), as at the end of a step: ranks of a static job, with horo run --grace,
 * are told after the same step. Never blocks. */
HORO_API int32_t horo_notice(horo_session* session, double* grace_s);
/* Ends the current epoch of the world on all ranks and begins the next one with the same ranks: new connections and
 * lanes in the same session. All ranks call it equally often. What is released by then ends first; everything else in
 * flight, keys, process sets, rounds, joins and residuals stay. Returns a work that ends in the next epoch, with
 * counts: its number, and the microseconds for ending the released collectives, leaving, connecting and agreeing.
 * Memory of horo_allocate stays valid. HORO_INVALID_ARGUMENT: the ranks cannot connect again (MPI, an exchange of the
 * caller); the work fails with HORO_MISMATCH if a rank has joined or left. */
HORO_API int64_t horo_rebuild(horo_session* session);

#ifdef __cplusplus
}
#endif
#endif /* HORO_C_SESSION_H */
