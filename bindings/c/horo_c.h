/* The C ABI of horo: what every binding and extension uses. Version 1.
 *
 * No C++ type and no exception crosses it. A call that can fail returns a negative horo_status (or a null pointer); the
 * sentence that says why is horo_error_text() in the same thread, valid until that thread's next horo call. Structs
 * begin with their own size, so that later versions can add fields at the end. Enumerations are fixed numbers.
 *
 * Threads: every call may be made by any thread, except that horo_free() must be the last call on its session. Calls
 * that may block say so; all others return in microseconds, so a caller may keep an interpreter lock.
 */
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
  HORO_TIMEOUT = 1,           /* not an error: the wait's time is over, the work goes on */
  HORO_INVALID_ARGUMENT = -1, /* bad argument or setting; nothing was queued */
  HORO_MISMATCH = -2,         /* ranks disagree about this tensor; the session goes on */
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
  HORO_FLOAT8_E4M3 = 11, /* without infinity: what is too large becomes +-448 */
  HORO_FLOAT8_E5M2 = 12,
  HORO_UINT32 = 13,
  HORO_UINT64 = 14,
  HORO_COMPLEX64 = 15,
  HORO_COMPLEX128 = 16
};
/* op */
enum {
  HORO_AVERAGE = 0,
  HORO_SUM = 1,
  HORO_MIN = 3,
  HORO_MAX = 4,
  HORO_PRODUCT = 5,
  HORO_BIT_AND = 6,
  HORO_BIT_OR = 7,
  HORO_BIT_XOR = 8,
  HORO_CUSTOM = 9
};
/* kind */
enum { HORO_ALL_REDUCE = 0, HORO_ALL_GATHER = 1, HORO_BROADCAST = 2, HORO_BARRIER = 5, HORO_REDUCE_SCATTER = 6 };
/* order */
enum { HORO_CANONICAL = 0, HORO_FAST = 1 };

typedef struct horo_session horo_session;

typedef struct {
  uint32_t struct_bytes;
  int32_t rank, size;             /* in the world */
  int32_t local_rank, local_size; /* on my host */
  int32_t cross_rank, cross_size; /* among the ranks with my local_rank on other hosts */
  uint32_t epoch;
} horo_topology;

typedef struct {
  uint32_t struct_bytes;
  uint32_t set;     /* process set; 0 is the world */
  uint32_t channel; /* 0 unless an extension opens its own stream of collectives */
  int32_t kind, op, dtype, order;
  int32_t root;     /* broadcast: rank in the set */
  int32_t stepwise; /* 1: submitted once between two horo_step_end, as a gradient is; may be bucketed for good */
  int32_t priority; /* must be 0 in this version */
  double weight;    /* must be 1 in this version */
  double prescale, postscale;
  const char* name;     /* null: unnamed, matched with the other ranks by order of submission */
  const int64_t* shape; /* of this rank's input; all_gather: the first dimension may differ between ranks */
  int32_t dims;
} horo_tensor_spec;

typedef struct {
  uint32_t struct_bytes;
  int32_t absent;   /* 1: no member had a value; out was not written */
  const void* data; /* memory of the work (all_gather without out), valid until horo_release; else null */
  uint64_t bytes;
  const int64_t* counts; /* all_gather: first dimension of each member's part, valid until horo_release; else null */
  int32_t count_count;
} horo_result;

typedef struct {
  int64_t key;
  const void* in;
  void* out;
} horo_submission;

HORO_API int32_t horo_abi_version(void);
HORO_API const char* horo_version(void);

/* Why the last failed call of this thread failed; never null. The session may be null (a failed horo_init). */
HORO_API const char* horo_error_text(const horo_session* session);
/* Its horo_status, for calls that return pointers. */
HORO_API int32_t horo_error_status(const horo_session* session);
/* HORO_PEER_LOST: the rank that was lost first, -1 where it is not known or the error is another. */
HORO_API int32_t horo_error_origin(const horo_session* session);

/* Joins the job that HORO_* variables describe (none: a world of one rank); settings are "HORO_NAME=value" strings that
 * take precedence over the environment. Blocks up to HORO_START_TIMEOUT_MS. Null on failure. */
HORO_API horo_session* horo_init(const char* const* settings, size_t count);
/* One all-gather among the ranks, before they are connected. */
#define HORO_EXCHANGE_BYTES 4096
typedef struct {
  uint32_t struct_bytes;
  int32_t rank, size;
  int32_t start; /* how often the launcher has started the ranks again: two starts must not mix */
  int32_t timeout_ms;
  const void* mine; /* this rank's bytes, at most HORO_EXCHANGE_BYTES */
  uint64_t mine_bytes;
  void* all;           /* to fill: rank r's bytes at r * HORO_EXCHANGE_BYTES ... */
  uint64_t* all_bytes; /* ... and how many they are */
  char* error;         /* to fill on failure: a sentence that ends in a zero */
  uint64_t error_bytes;
  int32_t origin; /* to fill on HORO_PEER_LOST: the first rank that did not come, or -1 */
} horo_exchange_call;
/* Returns HORO_OK, or a negative horo_status that horo_init_exchange then fails with. May block up to timeout_ms. */
typedef int32_t (*horo_exchange)(void* user, horo_exchange_call* call);

/* horo_init for a launcher with a meeting place of its own. `exchange` is called, on the thread of this call, where
 * neither HORO_ADDR nor one host brings the ranks together; it must not throw. Whoever can take part in it is not
 * trusted: ranks of several hosts need HORO_KEY_FILE. */
HORO_API horo_session* horo_init_exchange(const char* const* settings, size_t count, horo_exchange exchange,
                                          void* user);
/* Leaves in good order: unfinished works fail with HORO_SHUT_DOWN. Blocks at most a second. May be called again, and by
 * several threads at once: all return when it is done. */
HORO_API int32_t horo_shutdown(horo_session* session);
/* Shuts down if that was not done, and frees the session and all its works. */
HORO_API void horo_free(horo_session* session);
/* Ends the job for all ranks: within a second every rank's works fail with HORO_PEER_LOST, this rank's number and
 * reason. */
HORO_API int32_t horo_abort(horo_session* session, const char* reason);
HORO_API int32_t horo_get_topology(const horo_session* session, horo_topology* topology);

/* Declares a tensor once; returns its key (>= 0), the same one for the same spec. A name declared with another spec
 * gets another key. */
HORO_API int64_t horo_declare(horo_session* session, const horo_tensor_spec* spec);
/* This rank has the tensor ready. Returns a work (> 0). in and out: equal, or disjoint; in is never written if they
 * differ. Both must stay valid until the work ends. out must be null for all_gather (see horo_result) and both for
 * barrier; sizes follow from the spec: reduce_scatter's out has the rows of the first dimension that fall to this rank.
 * A name that is in flight is HORO_INVALID_ARGUMENT. Never blocks. */
HORO_API int64_t horo_submit(horo_session* session, int64_t key, const void* in, void* out);
/* This rank has nothing to add (all_reduce only): out gets the reduction of the other members' values, or stays as it
 * is where no member has one (horo_result.absent). */
HORO_API int64_t horo_submit_absent(horo_session* session, int64_t key, void* out);
/* All of them or, on an error, none; works[i] belongs to submissions[i]. */
HORO_API int32_t horo_submit_many(horo_session* session, const horo_submission* submissions, size_t count,
                                  int64_t* works);
/* horo_declare and horo_submit in one call; the only way for unnamed tensors. */
HORO_API int64_t horo_submit_spec(horo_session* session, const horo_tensor_spec* spec, const void* in, void* out);

/* 1: the work has ended (well or not), 0: not yet. */
HORO_API int32_t horo_poll(horo_session* session, int64_t work);
/* Blocks until all of them have ended or the time is over (HORO_TIMEOUT); the error of the first that failed, if any.
 */
HORO_API int32_t horo_wait(horo_session* session, const int64_t* works, size_t count, int32_t timeout_ms);
/* Of a work that has ended well. */
HORO_API int32_t horo_get_result(horo_session* session, int64_t work, horo_result* result);
/* Forgets the handle. A work in flight goes on: its memory must stay valid until it ends. */
HORO_API int32_t horo_release(horo_session* session, int64_t work);
/* The caller ended a step of this process set; see horo_tensor_spec.stepwise. Never blocks. */
HORO_API int32_t horo_step_end(horo_session* session, uint32_t set);

/* All counters as JSON (docs/counters.md), empty on an error; valid until this thread's next horo call. */
HORO_API const char* horo_counters(horo_session* session);
/* When each rank had each tensor of the last step ready, as JSON: {"name": [milliseconds by rank], ...}, since the
 * first of all these times; null where it is not known. Rank 0 knows all ranks, every other only itself. Empty on an
 * error. Blocks until the engine has looked (microseconds, unless it is busy); valid until this thread's next horo
 * call. */
HORO_API const char* horo_ready_times(horo_session* session);

/* Where are you? Asked of every rank when a tensor that some ranks have submitted and others have not is about to fail.
 * A binding keeps one thread in horo_next_question: it blocks until there is a question (> 0, its number), the time is
 * over (0) or the session ends (negative), and must have returned before horo_free. The answer goes to the error of all
 * ranks: lines of text, at most 2,048 bytes; it counts if it comes within HORO_ANSWER_TIMEOUT_MS. */
HORO_API int64_t horo_next_question(horo_session* session, int32_t timeout_ms);
HORO_API int32_t horo_answer(horo_session* session, int64_t question, const char* text);

#ifdef __cplusplus
}
#endif

#endif /* HORO_C_H */
