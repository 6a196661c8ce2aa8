/* What every contestant of `horo bench --against` has in common. A rank is started by its own library's launcher, sits
 * down at the referee's Unix socket and does what it is told there; the referee is the horo process. Loops, clocks,
 * barriers, inputs and checks are in here, the same for all: a driver brings the operation alone.
 *
 * A C interface, so that Python can load it.
 */
#ifndef CONTEST_H
#define CONTEST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The environment of every rank: the referee's folder, and which contestant this is. */
#define CONTEST_FOLDER "CONTEST_FOLDER"
#define CONTEST_NAME "CONTEST_NAME"

/* One collective on buffers of one size. `count` elements in all on the larger side; on the smaller one count / size,
 * where a collective has one. in and out are the same for all_reduce and broadcast, and disjoint for all others. Rank 0
 * is the root. */
typedef struct {
  const char* collective; /* "all_reduce" */
  const char* dtype;      /* "float32" */
  int32_t rank, size;
  int32_t in_place; /* 1: in and out are the same */
  uint64_t count;
  void* in;
  void* out;
  uint64_t in_bytes, out_bytes;
} contest_task;

#define CONTEST_ERROR_BYTES 512

/* From so many bytes on each operation is timed by itself, after its inputs were rewritten. */
#define CONTEST_ALONE_BYTES 65536

/* Functions return 0, or another number when they fail. */
typedef struct {
  void* user;
  const char* version; /* of the library, for the report; a line at most */
  /* Memory for in and out. Null: pages as a caller would have them. */
  int32_t (*allocate)(void* user, contest_task* task);
  /* Before the first run. On failure `error` has a sentence (of CONTEST_ERROR_BYTES at most) that says why this task
   * cannot be done; the contestant stays for the next. */
  int32_t (*prepare)(void* user, const contest_task* task, char* error);
  /* Once. A failure ends the contest. */
  int32_t (*run)(void* user);
  /* The memory of the last task is no longer needed. May be null. */
  void (*finish)(void* user);
} contest_driver;

/* Does what the referee says until it hangs up. Returns an exit code; what went wrong is on stderr. */
__attribute__((visibility("default"))) int32_t contest_play(int32_t rank, int32_t size, const contest_driver* driver);

#ifdef __cplusplus
}
#endif

#endif /* CONTEST_H */
