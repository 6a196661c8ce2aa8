/* Elastic jobs that grow: processes join while the job runs. See docs/elastic.md and Session in horo/session.h. */
#ifndef HORO_C_GROW_H
#define HORO_C_GROW_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 1 if this process was started to join a job that runs, and has not joined: its session is one of this rank alone. */
HORO_API int32_t horo_has_yet_to_join(horo_session* session);
/* Joins that job: blocks until its ranks have come to a border (horo_grow). settings: see horo_init. terms: lines
 * "name=value" that all ranks have alike, besides the settings; together at most 1 MiB. HORO_PEER_LOST: the job has
 * ended, or refuses this process, with the reason. The session that horo_init gave is freed by its caller. */
HORO_API horo_session* horo_init_join(const char* const* settings, size_t count, const char* terms);
/* A rank that was evicted, because it did not answer for a while, joins again in its process: asks horo run for a place
 * among the ranks. Returns lines "name=value", each a setting for horo_init_join, which give it a new number; the
 * caller ends and frees this session first. Empty: the rank was not evicted, or horo run refuses it, as the job ends,
 * cannot grow, or has no restart left for it. Null: an error. Valid as an error text is. Blocks for at most 5 s. */
HORO_API const char* horo_rejoin(horo_session* session);
/* The script of this rank can go on with processes that join, if they have the same terms. The last call counts. Null:
 * it cannot any more. The line most_ranks=N means that processes join only up to N ranks. */
HORO_API int32_t horo_can_grow(horo_session* session, const char* terms);
/* Writes the ids (horo_get_members) that the processes which are ready to join will have; at most `count` of them.
 * Returns their number. Ranks are told at different times. Never blocks. */
HORO_API int32_t horo_get_joiners(horo_session* session, uint32_t* ids, size_t count);
/* Ends the epoch on all ranks at one place of their calls, and begins the next one with the processes that are ready.
 * All ranks call it equally often. What is released by then ends first; everything else in flight stays. Returns a work
 * that ends in the next epoch, with its number (counts); none may have joined, and ranks may be lost.
 * HORO_INVALID_ARGUMENT: a static job, or process sets of more than 1 MiB. */
HORO_API int64_t horo_grow(horo_session* session);
/* This rank, which has joined, has the state of the others: it counts as they do from here on. text: for the log. */
HORO_API int32_t horo_synced(horo_session* session, const char* text);

typedef struct {
  uint32_t struct_bytes;
  const char* name; /* name and form are equal on all ranks; the form says what the bytes are: "float32[16, 3]" */
  const char* form;
  void* data; /* of the host; null if there are no bytes */
  uint64_t bytes;
  int32_t is_of_first; /* 1: ranks may have different values, so all of it comes from the first rank with the state */
} horo_state_buffer;
typedef struct {
  uint32_t struct_bytes;
  int32_t is_complete; /* 1: this rank has the state; 0: a donor was lost, begin another transfer */
  int32_t by_messages; /* 1: the kernel did not let this rank read the memory of the others */
  uint64_t bytes;      /* that this rank has got, in this time; 0 at a donor, as below */
  double seconds;
  const char* text; /* "256 MiB from ranks 0, 1 in 41 ms", for horo_synced; valid as an error text is */
} horo_transferred;
/* Gives the buffers of the ranks that have the state to those that have joined. Collective over the world, between two
 * rounds: the memory of the donors does not change meanwhile. Blocks. HORO_INVALID_ARGUMENT on a rank that joins alone:
 * its buffers differ, nothing was written; its process is to end. */
HORO_API int32_t horo_transfer(horo_session* session, const horo_state_buffer* buffers, size_t count, int32_t has_state,
                               horo_transferred* moved);

#ifdef __cplusplus
}
#endif
#endif /* HORO_C_GROW_H */
