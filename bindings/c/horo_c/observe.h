/* What the session measures and writes: counters, timelines, settings, answers to a stall. */
#ifndef HORO_C_OBSERVE_H
#define HORO_C_OBSERVE_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All counters as JSON (docs/counters.md), empty on an error; valid until this thread's next horo call. */
HORO_API const char* horo_counters(horo_session* session);
/* The time at which each rank had each tensor of the last step ready, as JSON: {"name": [milliseconds by rank], ...},
 * counted from the first of these times; null where it is unknown. Rank 0 has the times of all ranks, another rank
 * only its own. Empty on an error. Blocks until the engine has answered (microseconds, unless busy); valid as above. */
HORO_API const char* horo_ready_times(horo_session* session);

/* Writes what this rank does to a file for trace viewers (docs/timeline.md), until horo_stop_timeline or the end of the
 * session: rank 0 to the path, other ranks to a path with their number. The second call blocks until it is written. */
HORO_API int32_t horo_start_timeline(horo_session* session, const char* path);
HORO_API int32_t horo_stop_timeline(horo_session* session);

/* The value of a setting as text; empty: it cannot be shown; null: an error. Valid until this thread's next call. */
HORO_API const char* horo_setting(horo_session* session, const char* name);

/* Stall diagnosis: before a warning or a failure of a tensor that only some ranks have submitted, each rank is asked
 * for the call sites of its callers. A binding keeps one thread in horo_next_question, which blocks until there is a
 * question (> 0, its number), the timeout passes (0) or the session ends (negative), and must have returned before
 * horo_free. The answer becomes part of the warning or error: at most 2,048 bytes, within HORO_ANSWER_TIMEOUT_MS. */
HORO_API int64_t horo_next_question(horo_session* session, int32_t timeout_ms);
HORO_API int32_t horo_answer(horo_session* session, int64_t question, const char* text);

/* Before horo_init: where its caller is, for `horo why` of a job that does not start; cut to 400 bytes. */
HORO_API int32_t horo_start_site(const char* text);

#ifdef __cplusplus
}
#endif
#endif /* HORO_C_OBSERVE_H */
