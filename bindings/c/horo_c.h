/* The C ABI of horo, for bindings and extensions. Version 1.
 * No C++ type and no exception crosses it. A call that can fail returns a negative horo_status, or a null
 * pointer; horo_error_text() in the same thread returns the reason, valid until that thread's next horo call. Structs
 * begin with their own size, so that later versions can add fields at the end. Enumerations are fixed numbers.
 * Threads: every call may be made by any thread, except that horo_free() must be the last call on its session. Calls
 * that may block are marked so; all others return in microseconds, so a caller may keep an interpreter lock. */
#ifndef HORO_C_H
#define HORO_C_H

#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#define HORO_ABI_VERSION 1
#define HORO_API __attribute__((visibility("default")))

typedef enum {
  HORO_OK = 0,
  HORO_TIMEOUT = 1,           /* not an error: the timeout passed, the work continues */
  HORO_INVALID_ARGUMENT = -1, /* bad argument or setting; nothing was queued */
  HORO_MISMATCH = -2,         /* ranks disagree about this tensor; the session continues */
  HORO_PEER_LOST = -3,        /* the epoch has ended; every work fails with this */
  HORO_SHUT_DOWN = -4,        /* the session was shut down */
  HORO_INTERNAL = -5
} horo_status;

/* dtype */
enum {
  HORO_UINT8 = 0,
  HORO_INT8 = 1,
  HORO_UINT16 = 2,
  HORO_INT16 = 3,
  HORO_INT32 = 4,
  HORO_INT64 = 5,
  HORO_FLOAT16 = 6,
  HORO_FLOAT32 = 7,
  HORO_FLOAT64 = 8,
  HORO_BOOL = 9,
  HORO_BFLOAT16 = 10,
  HORO_FLOAT8_E4M3 = 11, /* without infinity: larger values become +-448 */
  HORO_FLOAT8_E5M2 = 12,
  HORO_UINT32 = 13,
  HORO_UINT64 = 14,
  HORO_COMPLEX64 = 15, /* sum, average and product only */
  HORO_COMPLEX128 = 16
};
/* op; bitwise operations are for integers and bool */
enum {
  HORO_AVERAGE = 0,
  HORO_SUM = 1,
  HORO_ADASUM = 2, /* all_reduce of 16-, 32- and 64-bit floats */
  HORO_MIN = 3,
  HORO_MAX = 4,
  HORO_PRODUCT = 5,
  HORO_BIT_AND = 6,
  HORO_BIT_OR = 7,
  HORO_BIT_XOR = 8,
  HORO_CUSTOM = 9 /* named by horo_tensor_spec.custom_op */
};
/* kind */
enum {
  HORO_ALL_REDUCE = 0,
  HORO_ALL_GATHER = 1,
  HORO_BROADCAST = 2,
  HORO_ALL_TO_ALL = 4,
  HORO_BARRIER = 5,
  HORO_REDUCE_SCATTER = 6,
  HORO_REDUCE = 7,
  HORO_GATHER = 8,
  HORO_SCATTER = 9,
  HORO_SEND_RECV = 10 /* root sends to peer; no other rank takes part */
};
/* order */
enum { HORO_CANONICAL = 0, HORO_FAST = 1 };

typedef struct horo_session horo_session;

typedef struct {
  uint32_t struct_bytes;
  int32_t rank, size;             /* in the world */
  int32_t local_rank, local_size; /* on the host of this rank */
  int32_t cross_rank, cross_size; /* among the ranks with this local_rank on all hosts */
  uint32_t epoch;
  int32_t min_size, is_homogeneous; /* least number of ranks of an elastic job, or 0; 1: all hosts have as many ranks */
} horo_topology;

/* The declaration of a tensor. It must be equal on all members of the set, except for the first dimension of
 * all_gather, all_to_all, gather and scatter. Roots, peers and splits count ranks inside the set. */
typedef struct {
  uint32_t struct_bytes;
  uint32_t set;     /* process set; 0 is the world */
  uint32_t channel; /* 0 unless an extension opens its own stream of collectives */
  int32_t kind, op, dtype, order;
  int32_t root;     /* broadcast, reduce, gather, scatter; send_recv: the sender */
  int32_t peer;     /* send_recv: the receiver; else not read */
  int32_t stepwise; /* 1: submitted once between two horo_step_end, as a gradient is; may be in a known plan */
  int32_t priority; /* a greater value runs sooner, among ready tensors; send_recv, barrier: not read */
  double weight;    /* must be 1 in this version */
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
   * name, and for the barrier with a name that commits a round of an elastic job. 0 if struct_bytes ends before it. */
  uint64_t round_stream;
  /* 1: the members know the sizes, and exchange none. The shape is equal on all members (scatter: read on all), or, of
   * all_gather and gather, splits has the rows from each; all_to_all, scatter: the rows are dealt evenly. Members that
   * disagree fail with HORO_MISMATCH. 0 if struct_bytes ends before it. */
  int32_t counts_known;
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
} horo_submission;

/* Tensors of one set that run or fail together. Those without a name are called <unit>_<i>of<count>, with i from 1. */
typedef struct {
  uint32_t struct_bytes;
  int32_t count;
  const char* name;                   /* null: matched with the other ranks by order of submission */
  const horo_tensor_spec* specs;      /* structs of specs[0].struct_bytes each */
  const horo_submission* submissions; /* structs of submissions[0].struct_bytes each */
} horo_unit;

/* A process set, as seen by this rank. */
typedef struct {
  uint32_t struct_bytes;
  int32_t rank; /* of this rank inside the set; -1: not a member */
  int32_t size;
  const int32_t* ranks; /* world ranks, ascending; valid until this thread's next horo call, as is name */
  const char* name;
} horo_set_info;

/* A custom reduction, for horo_register_op. */
enum {
  HORO_OP_ASSOCIATIVE = 1, /* element-wise: may be applied to any piece of a tensor */
  HORO_OP_WHOLE = 2        /* needs whole tensors, which are then neither bucketed nor cut */
};
typedef struct {
  uint32_t struct_bytes;
  int32_t flags; /* one of the two above */
  /* Sets accumulator to accumulator o value; the accumulator holds the lower ranks. Both have `count` elements of the
   * dtype, are aligned for it and do not overlap. The order is canonical, so the operation need not commute. The same
   * inputs must give the same bits. Called by horo's threads, one at a time for a collective. A result other than 0
   * ends the job; the error names operation and tensor. */
  int32_t (*combine)(void* user, void* accumulator, const void* value, uint64_t count, int32_t dtype);
  void* user;
} horo_op;

/* A codec, for horo_register_codec: converts float32 values to the bytes that are sent, and back. */
enum { HORO_CODEC_STATEFUL = 1 /* the coding error of a value is added to the next one */ };
typedef struct {
  uint32_t struct_bytes;
  int32_t flags;  /* HORO_CODEC_STATEFUL, or 0 */
  uint64_t block; /* elements that are coded together; tensors are cut only between blocks */
  uint64_t (*wire_bytes)(void* user, uint64_t count); /* the exact size of `count` coded elements */
  /* wire has any alignment. encode writes the code of x + residual, and sets residual to the part of it that
   * decode does not restore; null: the codec is not stateful. The same values must give the same bytes on all ranks.
   * Called by horo's threads, by several at once. A result other than 0 ends the job; the error names the tensor. */
  int32_t (*encode)(void* user, const float* x, float* residual, void* wire, uint64_t count);
  int32_t (*decode)(void* user, const void* wire, float* out, uint64_t count);
  void* user;
} horo_codec;

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
/* Returns 1 if the host of this rank of an elastic job is drained, else 0: horo run ends the rank in `grace_s` seconds
 * (an output, may be null). It is to leave before (horo_shutdown), as at the end of a step. Never blocks. */
HORO_API int32_t horo_notice(horo_session* session, double* grace_s);

/* Declares a tensor; returns its key (>= 0). Equal specs have one key; the same name with another spec has another
 * key. Keys are reference-counted: this call adds a reference, horo_undeclare removes one. */
HORO_API int64_t horo_declare(horo_session* session, const horo_tensor_spec* spec);
/* The caller uses these keys no more: each undoes one horo_declare. Another tensor may have the key from then on. What
 * is in flight goes on. Fails, and changes nothing, if one of them is not declared. Never blocks. */
HORO_API int32_t horo_undeclare(horo_session* session, const int64_t* keys, size_t count);
/* Submits a tensor that is ready on this rank, as a horo_submission with all other fields 0. Returns a work (> 0).
 * Fails with HORO_INVALID_ARGUMENT if the name is in flight. Never blocks. */
HORO_API int64_t horo_submit(horo_session* session, int64_t key, const void* in, void* out);
/* Submits a tensor without a value of this rank (all_reduce only): out receives the reduction of the other members'
 * values. It is not written if no member has a value (horo_result.absent). */
HORO_API int64_t horo_submit_absent(horo_session* session, int64_t key, void* out);
/* Submits all tensors or, on an error, none; works[i] belongs to submissions[i], of submissions[0].struct_bytes each.
 */
HORO_API int32_t horo_submit_many(horo_session* session, const horo_submission* submissions, size_t count,
                                  int64_t* works);
/* horo_submit_many of tensors that are reduced in place: tensor keys[i] is at data[i]. */
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
/* The result of a work that has ended without an error. */
HORO_API int32_t horo_get_result(horo_session* session, int64_t work, horo_result* result);
/* Releases the handle. A work in flight continues, and its memory must stay valid until it ends. */
HORO_API int32_t horo_release(horo_session* session, int64_t work);
/* Releases several handles. Returns HORO_INVALID_ARGUMENT if one of them is unknown; the others are released. */
HORO_API int32_t horo_release_many(horo_session* session, const int64_t* works, size_t count);
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
/* Removes the set; the ranks that added it make the same call. Pending submissions of the set fail, and the work ends
 * when no work of the set is in flight on this rank. */
HORO_API int64_t horo_remove_set(horo_session* session, uint32_t set);
HORO_API int32_t horo_get_set(horo_session* session, uint32_t set, horo_set_info* info);
/* Announces that this rank has no more data in this set. Returns a work that ends when all members have joined. Until
 * then this rank must not submit to the set. All_reduces and barriers of the other members continue without it (an
 * average still divides by the size of the set); their other collectives in the set fail. */
HORO_API int64_t horo_join(horo_session* session, uint32_t set);
/* Ends the current epoch of the world on all ranks and begins the next one with the same ranks: new connections and
 * lanes in the same session. All ranks call it equally often. What is released by then ends first; everything else in
 * flight, keys, process sets, rounds, joins and residuals stay. Returns a work that ends in the next epoch, with
 * counts: its number, and the microseconds for ending the released collectives, leaving, connecting and agreeing.
 * Memory of horo_allocate stays valid. HORO_INVALID_ARGUMENT: the ranks cannot connect again (MPI, an exchange of the
 * caller); the work fails with HORO_MISMATCH if a rank has joined or left. */
HORO_API int64_t horo_rebuild(horo_session* session);

/* Registers an operation by name in this session, before specs that name it; all ranks register it alike. The struct is
 * copied; user must live as long as the session. */
HORO_API int32_t horo_register_op(horo_session* session, const char* name, const horo_op* op);
/* "fp16", "bf16", "fp8" and "int8" are built in. */
HORO_API int32_t horo_register_codec(horo_session* session, const char* name, const horo_codec* codec);

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

/* hashes[i] becomes the hash of sizes[i] bytes at data[i]: equal on all processors; inputs of equal size that differ
 * in one bit have different hashes. Not for untrusted input. Needs no session, reads all of the memory. */
HORO_API int32_t horo_hash_many(const void* const* data, const uint64_t* sizes, size_t count, uint64_t* hashes);

/* Stall diagnosis: before a warning or a failure of a tensor that only some ranks have submitted, each rank is asked
 * for the call sites of its callers. A binding keeps one thread in horo_next_question, which blocks until there is a
 * question (> 0, its number), the timeout passes (0) or the session ends (negative), and must have returned before
 * horo_free. The answer becomes part of the warning or error: at most 2,048 bytes, within HORO_ANSWER_TIMEOUT_MS. */
HORO_API int64_t horo_next_question(horo_session* session, int32_t timeout_ms);
HORO_API int32_t horo_answer(horo_session* session, int64_t question, const char* text);

#ifdef __cplusplus
}
#endif
#endif /* HORO_C_H */
