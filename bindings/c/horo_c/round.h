/* Steps and rounds: what one outermost backward pass reduces. */
#ifndef HORO_C_ROUND_H
#define HORO_C_ROUND_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ends a step of this process set; see horo_tensor_spec.stepwise. Never blocks. */
HORO_API int32_t horo_step_end(horo_session* session, uint32_t set);

/* Rounds: what one outermost backward pass reduces. The tensors of this round stream (horo_tensor_spec.round_stream)
 * that this rank submits from now on belong to this round; a tensor that ranks submit in different rounds fails with
 * HORO_MISMATCH on all. The caller counts steps and rounds alike on all ranks; (step, round) rises, but may begin anew
 * after a join. round may be (number + 1) * 2^32 + a digest of what the rank submits in it. Never blocks, sends nothing
 * alone. Rank 0 compares the rounds of the HORO_MAX_ROUND_STREAMS streams used last. The stream must not be 0. */
HORO_API int32_t horo_begin_round(horo_session* session, uint32_t set, uint64_t stream, uint64_t step, uint64_t round);
/* This rank will not submit the other tensors of its current round of the stream, because its backward pass failed. On
 * the other ranks what they submit in that round, and this rank did not, fails at once with HORO_MISMATCH and the
 * reason, of which at most 1,024 bytes are sent. Ends with this rank's next horo_begin_round. Never blocks. */
HORO_API int32_t horo_fail_round(horo_session* session, uint32_t set, uint64_t stream, const char* reason);

#ifdef __cplusplus
}
#endif
#endif /* HORO_C_ROUND_H */
