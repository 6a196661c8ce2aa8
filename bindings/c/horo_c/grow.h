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
 * "name=value" that all ranks have alike, besides the settings; at most 983,040 bytes. HORO_PEER_LOST: the job has
 * ended, or refuses this process, with the reason. The session that horo_init gave is freed by its caller. */
HORO_API horo_session* horo_init_join(const char* const* settings, size_t count, const char* terms);
/* The script of this rank can go on with processes that join, if they have the same terms. The last call counts. */
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

#ifdef __cplusplus
}
#endif
#endif /* HORO_C_GROW_H */
