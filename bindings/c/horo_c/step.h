/* Where the time of each step of this rank goes: docs/scaling.md. Off with HORO_ACCOUNTING=off. */
#ifndef HORO_C_STEP_H
#define HORO_C_STEP_H

#include "tensor.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* horo_bar: the parts of a step, in the order of horo_step.bars_ns. */
enum {
  HORO_BAR_INPUT = 0,
  HORO_BAR_FORWARD = 1,
  HORO_BAR_BACKWARD = 2,
  HORO_BAR_AFTER_BACKWARD = 3,
  HORO_BAR_OPTIMIZER = 4,
  HORO_BAR_CHECKPOINT = 5,
  HORO_BAR_BETWEEN = 6,
  HORO_BAR_SKEW = 7,
  HORO_BAR_AGREEMENT = 8,
  HORO_BAR_TRANSFER = 9,
  HORO_BAR_COPIES = 10,
  HORO_BAR_COMMIT = 11,
  HORO_BAR_HAND_OVER = 12,
  HORO_BAR_MEMBERSHIP = 13
};
#define HORO_BARS 14
#define HORO_LATE_RANKS 3

/* Flags of a step. */
enum {
  HORO_STEP_ESTIMATED_WAIT = 1, /* its wait was outside of horo's calls: from the last submission to its end */
  HORO_STEP_TOO_MANY_WAITS = 2, /* waits beyond the most that are kept are in the bars around them */
  HORO_STEP_JOBS_FORGOTTEN = 4, /* collectives beyond the most that are kept count as hand-over */
  HORO_STEP_DEVICE_TIME = 8,    /* its times are those of the stream of a device: when it has reached the marks */
  /* These are not known: its times are those of the host. Where the host was ahead of the device by then, the step has
   * no length, and its time is that of the next one. */
  HORO_STEP_NO_DEVICE_TIME = 16
};

/* One step of this rank. Times are nanoseconds, those of the clock CLOCK_MONOTONIC; the bars add up to time_ns. -1: not
 * known, but for a bar: bit number i of `known` says whether bar i is known, and a bar that is not is 0. */
typedef struct {
  uint32_t struct_bytes; /* set by the caller: sizeof(horo_step) */
  uint32_t known;
  uint64_t number; /* from 1 */
  uint64_t stream; /* the round stream of the optimizer that ended it; 0: none */
  int64_t begin_ns;
  int64_t time_ns;
  int64_t bars_ns[HORO_BARS];
  int64_t
      hidden_transfer_ns; /* of lanes, while the training thread did not wait; no part of the sum, as what follows */
  int64_t hidden_copies_ns;
  int64_t gc_ns;
  int64_t cpu_ns;       /* of the training thread; run_queue_ns and switches, too: since the last step that has them, as
                           the kernel is asked every 10 ms at most. -1 in between */
  int64_t run_queue_ns; /* the training thread was ready to run, and had no core */
  int64_t samples;
  int64_t work; /* elements of the batches */
  int32_t switches;
  uint32_t epoch;
  uint32_t flags;
  int32_t late_ranks[HORO_LATE_RANKS]; /* the ranks that this rank waited for, the longest first; -1: none */
  int64_t late_ns[HORO_LATE_RANKS];    /* its skew for each */
} horo_step;

/* horo_mark: kinds of marks. A collection (of garbage) is beside the bars. */
enum {
  HORO_MARK_INPUT = 0,
  HORO_MARK_BACKWARD = 1,
  HORO_MARK_OPTIMIZER = 2,
  HORO_MARK_CHECKPOINT = 3,
  HORO_MARK_COLLECTION = 4
};
/* Flags of the end of a step. */
enum {
  HORO_STEP_IN_FORWARD = 1,     /* it ends while a forward runs */
  HORO_STEP_WAITS_ELSEWHERE = 2 /* the thread waited outside of horo's calls from its last submission on: estimated */
};

/* What the caller knows of a step that ends. */
typedef struct {
  uint32_t struct_bytes; /* set by the caller: sizeof(horo_ended_step) */
  uint32_t flags;
  uint64_t stream;
  int64_t samples;      /* -1: not known */
  int64_t work;         /* -1: not known */
  uint32_t kinds;       /* of marks that the caller makes: 1 << horo_mark */
  uint32_t mark_count;  /* since the last end */
  const int64_t* marks; /* pairs, in order: 2 * horo_mark, + 1 where it begins; CLOCK_MONOTONIC in nanoseconds */
} horo_ended_step;

/* The calling thread, which is the training thread from then on, ends a step now. Its marks nest; each nanosecond
 * belongs to the innermost one. Returns within microseconds. */
HORO_API int32_t horo_end_step(horo_session* session, const horo_ended_step* end);
/* Keeps marks of a step that goes on, where the caller has no room for more. Of the training thread. */
HORO_API int32_t horo_add_marks(horo_session* session, const int64_t* marks, uint32_t count);
/* The calling thread has just made its mark of this number (from 0, of those that horo_end_step or horo_add_marks is
 * given next), or with HORO_END_OF_STEP it is about to call horo_end_step, and it uses this stream of a device. Where
 * all marks of a step but collections are recorded, and its end, its times are those at which the stream has reached
 * them; they are known one step later, or more. Of the training thread. Returns within microseconds, without a wait for
 * the device. */
#define HORO_END_OF_STEP UINT32_MAX
HORO_API int32_t horo_record_mark(horo_session* session, uint32_t mark, const horo_stream* stream);
/* As horo_step_end, for callers that end steps of the accounting by horo_end_step: one for several optimizers. */
HORO_API int32_t horo_end_round(horo_session* session, uint32_t set);

/* The last step. Returns 1, or 0 where no step has ended, or the accounting is off. */
HORO_API int32_t horo_last_step(horo_session* session, horo_step* step);
/* The last steps, at most `count` and 1,024, in their order; the first one's struct_bytes counts. Returns their number.
 */
HORO_API int32_t horo_get_steps(horo_session* session, horo_step* steps, size_t count);

#ifdef __cplusplus
}
#endif
#endif /* HORO_C_STEP_H */
