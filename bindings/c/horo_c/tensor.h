/* Tensors: declaration, submission, waiting, results. */
#ifndef HORO_C_TENSOR_H
#define HORO_C_TENSOR_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The declaration of a tensor. It must be equal on all members of the set, except for the first dimension of
 * all_gather, all_to_all, gather and scatter. Roots, peers and splits count ranks inside the set. */
typedef struct {
  uint32_t struct_bytes;
  uint32_t set; /* process set; 0 is the world */
  int32_t kind, op, dtype, order;
  int32_t root;     /* broadcast, reduce, gather, scatter; send_recv: the sender */
  int32_t peer;     /* send_recv: the receiver; else not read */
  int32_t stepwise; /* 1: submitted once between two horo_step_end, as a gradient is; may be in a known plan */
  int32_t priority; /* a greater value runs sooner, among ready tensors; send_recv, barrier: not read */
  double prescale, postscale;
  const char* name;      /* null: unnamed, matched with the other ranks by order of submission */
  const int64_t* shape;  /* of this rank's input; scatter: of the root's, others' first dimension is not read */
  const int64_t* splits; /* reduce_scatter: rows for each member; null: evenly, the first have one more. all_gather,
                            gather: with counts_known, rows from each member; null: as many as from this one */
  const char* codec;     /* all_reduce, sum or average: the codec of the bytes on the wire; null: none */
  const char* custom_op; /* HORO_CUSTOM: its registered name */
  int32_t dims;
  int32_t split_count; /* 0, or the size of the set */
  /* The sequence of rounds that the tensor belongs to (horo_begin_round); 0: none. For a stepwise all_reduce with a
   * name, and for the barrier with a name that commits a round of an elastic job. */
  uint64_t round_stream;
  /* 1: the members know the sizes, and exchange none. The shape is equal on all members (scatter: read on all), or, of
   * all_gather and gather, splits has the rows from each; all_to_all, scatter: the rows are dealt evenly. Members that
   * disagree fail with HORO_MISMATCH. */
  int32_t counts_known;
  int32_t device_type; /* of in and out: HORO_HOST or HORO_CUDA; a result without out is memory of the host */
} horo_tensor_spec;

typedef struct {
  uint32_t struct_bytes;
  int32_t absent;   /* 1: no member had a value; out was not written */
  const void* data; /* memory of the work (results of varying size without out), valid until horo_release; else null */
  uint64_t bytes;   /* of a result of varying size, in data or in out */
  /* Valid until horo_release; null if there are none. all_gather, all_to_all, gather at the root: rows from each
   * member. scatter: the rows of this rank. horo_add_set: the number of the set. horo_join: the rank, in the set,
   * that joined last. horo_rebuild: see there. */
  const int64_t* counts;
  int32_t count_count;
} horo_result;

/* horo_submission.out_bytes without an out, of a tensor of a device: the work may own the result on that device. Then
 * horo_result.data is null, and horo_copy_result copies it. Else it is in horo_result.data, as without this. */
#define HORO_OUT_ON_DEVICE UINT64_MAX

/* One tensor that is ready here.
 *
 *   kind            in                                      out
 *   all_reduce      the tensor                              as in
 *   reduce          the tensor                              root: as in; others: not written, may be null
 *   reduce_scatter  the tensor                              this rank's rows
 *   broadcast       root: the tensor; others: not read      as in
 *   all_gather      the tensor                              null, or room for all rows
 *   gather          the tensor                              root: null, or room for all rows; others: not written
 *   all_to_all      rows for each member, in their order    null, or room for all rows
 *   scatter         root: rows for each member              null, or room for this rank's rows
 *   send_recv       root: the tensor; peer: not read        peer: as in; root: not written
 *   barrier         null                                    null
 *
 * in and out are equal, or disjoint; in is never written if they differ. Both must stay valid until the work ends.
 * all_gather, gather, all_to_all and scatter exchange the sizes of the results, unless the spec has counts_known. If
 * out is null, the work allocates the result (horo_result); else it is written to out. If it is larger than out_bytes,
 * the work fails with HORO_INVALID_ARGUMENT on this rank alone. */
typedef struct {
  uint32_t struct_bytes;
  int32_t absent; /* 1: this rank has no value (all_reduce only); in is not read, out is as usual */
  int64_t key;    /* not read by calls that take a horo_tensor_spec */
  const void* in;
  void* out;
  uint64_t out_bytes;    /* room in out for a result of varying size; reduce_scatter: room for the rows, 0: enough */
  const int64_t* splits; /* all_to_all, and scatter at the root: rows for each member; null: evenly, as above */
  uint64_t split_count;  /* 0, or the size of the set */
  /* Where in and out are: as in the spec, else HORO_INVALID_ARGUMENT; and the number of the CUDA device. in is read,
   * and out is written, after all that was enqueued on `stream` before the call (a CUstream or cudaStream_t; null: the
   * default stream). The work ends when the result is in out. A stream that is being captured into a graph is refused.
   */
  int32_t device_type, device;
  void* stream;
} horo_submission;

/* Tensors of one set that run or fail together. Those without a name are called <unit>_<i>of<count>, with i from 1. */
typedef struct {
  uint32_t struct_bytes;
  int32_t count;
  const char* name;                   /* null: matched with the other ranks by order of submission */
  const horo_tensor_spec* specs;      /* structs of specs[0].struct_bytes each */
  const horo_submission* submissions; /* structs of submissions[0].struct_bytes each */
} horo_unit;

/* Declares a tensor; returns its key (>= 0). Equal specs have one key; the same name with another spec has another
 * key. Keys are reference-counted: this call adds a reference, horo_undeclare removes one. */
HORO_API int64_t horo_declare(horo_session* session, const horo_tensor_spec* spec);
/* The caller uses these keys no more: each undoes one horo_declare. Another tensor may have the key from then on. What
 * is in flight goes on. Fails, and changes nothing, if one of them is not declared. Never blocks. */
HORO_API int32_t horo_undeclare(horo_session* session, const int64_t* keys, size_t count);
/* Submits a tensor of the host that is ready on this rank, as a horo_submission with all other fields 0. Returns a work
 * (> 0). Fails with HORO_INVALID_ARGUMENT if the name is in flight. Never blocks. */
HORO_API int64_t horo_submit(horo_session* session, int64_t key, const void* in, void* out);
/* Submits a tensor of the host without a value of this rank (all_reduce only): out receives the reduction of the other
 * members' values. It is not written if no member has a value (horo_result.absent). */
HORO_API int64_t horo_submit_absent(horo_session* session, int64_t key, void* out);
/* Submits all tensors or, on an error, none; works[i] belongs to submissions[i], of submissions[0].struct_bytes each.
 */
HORO_API int32_t horo_submit_many(horo_session* session, const horo_submission* submissions, size_t count,
                                  int64_t* works);
/* horo_submit_many of tensors of the host that are reduced in place: tensor keys[i] is at data[i]. */
HORO_API int32_t horo_submit_many_in_place(horo_session* session, const int64_t* keys, void* const* data, size_t count,
                                           int64_t* works);
/* Submits one tensor by its spec, without a key: the only way for unnamed tensors, and for names that are used once. */
HORO_API int64_t horo_submit_spec(horo_session* session, const horo_tensor_spec* spec,
                                  const horo_submission* submission);
/* Submits a unit: all of its tensors are run on all ranks, or all fail. works[i] belongs to specs[i]. */
HORO_API int32_t horo_submit_unit(horo_session* session, const horo_unit* unit, int64_t* works);

/* Returns 1 if the work has ended, with or without an error, else 0. */
HORO_API int32_t horo_poll(horo_session* session, int64_t work);
/* Blocks until all works have ended or the timeout has passed (HORO_TIMEOUT). Returns the error of the first work that
 * failed, if any. A deadlock is found only among threads whose waits have no end: a timeout of a day or more, or one of
 * at most a second after which the same works are waited for again. */
HORO_API int32_t horo_wait(horo_session* session, const int64_t* works, size_t count, int32_t timeout_ms);
/* A stream of a CUDA device: a CUstream or cudaStream_t; null: the default stream. */
typedef struct {
  uint32_t struct_bytes;
  int32_t device;
  void* stream;
} horo_stream;

/* horo_wait for what the caller's stream does next, without a wait for the device: returns when the collectives are
 * enqueued. What is enqueued on the stream after the call begins when the works have ended. horo_get_result and
 * horo_release may be called then; the memory of a work must stay valid until horo_poll tells its end, or until what
 * the stream was given after this call has begun. A rank that is lost after that is told by the next call. Works of the
 * host have ended when this returns. stream: null: no stream waits. */
HORO_API int32_t horo_wait_stream(horo_session* session, const int64_t* works, size_t count, const horo_stream* stream,
                                  int32_t timeout_ms);
/* Blocks until all works for which streams wait (horo_wait_stream) have ended, or failed, or the timeout has passed
 * (HORO_TIMEOUT). horo_shutdown does so without a timeout. */
HORO_API int32_t horo_finish_devices(horo_session* session, int32_t timeout_ms);
/* The result of a work that has ended without an error, or that horo_wait_stream has waited for. */
HORO_API int32_t horo_get_result(horo_session* session, int64_t work, horo_result* result);
/* Enqueues a copy of the result of a work that owns it on a device (HORO_OUT_ON_DEVICE) to `out`, memory of that device
 * with room for horo_result.bytes, on a stream that horo_wait_stream was called with. The work may be released then.
 * Fails with HORO_INVALID_ARGUMENT if the work has no such result. */
HORO_API int32_t horo_copy_result(horo_session* session, int64_t work, void* out, const horo_stream* stream);
/* Releases the handle. A work in flight continues, and its memory must stay valid until it ends. */
HORO_API int32_t horo_release(horo_session* session, int64_t work);
/* Releases several handles. Returns HORO_INVALID_ARGUMENT if one of them is unknown; the others are released. */
HORO_API int32_t horo_release_many(horo_session* session, const int64_t* works, size_t count);

#ifdef __cplusplus
}
#endif
#endif /* HORO_C_TENSOR_H */
