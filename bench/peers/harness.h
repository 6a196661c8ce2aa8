/* The harness of horo-bench: the part of a rank that is the same for all libraries. A rank is started by the launcher
 * of its library, connects to the Unix socket of the coordinator (the horo-bench process) and executes its requests.
 * The harness has the loops, clocks, barriers, inputs and checks; a driver implements only the operation.
 *
 * The interface is in C, so that Python can load it.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Environment variables of every rank: the coordinator's folder, and the name of the contestant. */
#define HARNESS_FOLDER "HARNESS_FOLDER"
#define HARNESS_CONTESTANT "HARNESS_CONTESTANT"

/* One collective on buffers of one size. The longer buffer has `count` elements; the shorter one of a collective that
 * divides its data has count / size. in and out are the same for all_reduce and broadcast, and disjoint for all others.
 * Rank 0 is the root. */
typedef struct {
  const char* collective; /* "all_reduce" */
  const char* dtype;      /* "float32" */
  int32_t rank, size;
  int32_t in_place; /* 1: in and out are the same */
  uint64_t count;
  void* in;
  void* out;
  uint64_t in_bytes, out_bytes;
} harness_task;

#define HARNESS_ERROR_BYTES 512

/* From this size in bytes on, each operation is timed by itself, after its input has been rewritten. */
#define HARNESS_TIMED_ALONE_BYTES 65536

/* Functions return 0, or another number if they fail. */
typedef struct {
  void* user;
  const char* version; /* of the library, for the report; one line */
  /* Allocates in and out. Null: the harness allocates ordinary pages. */
  int32_t (*allocate)(void* user, harness_task* task);
  /* Called before the first run. On failure it writes into `error` (HARNESS_ERROR_BYTES bytes) why the task is not
   * supported; the contestant continues with the next task. */
  int32_t (*prepare)(void* user, const harness_task* task, char* error);
  /* Runs the operation once. A failure ends the comparison. */
  int32_t (*run)(void* user);
  /* Releases the memory of the last task. May be null. */
  void (*finish)(void* user);
} harness_driver;

/* Executes requests until the coordinator closes the connection. Returns an exit code; errors are on stderr. */
__attribute__((visibility("default"))) int32_t harness_run(int32_t rank, int32_t size, const harness_driver* driver);

#ifdef __cplusplus
}
#endif

#endif /* HARNESS_H */
