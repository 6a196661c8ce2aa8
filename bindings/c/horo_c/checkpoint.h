/* Checkpoints: the state of a job in a folder, written in the background, and read by any number of ranks. See
 * docs/checkpoint_format.md. Functions that take a session are collective over its world: all ranks call them, with the
 * same tensors in the same order. A null session means this process alone. Errors: HORO_INVALID_ARGUMENT, a bad
 * argument of any rank, or ranks that differ; HORO_INTERNAL, files, folders and damage; HORO_PEER_LOST and
 * HORO_SHUT_DOWN, the session, or a handle in a forked process. */
#ifndef HORO_C_CHECKPOINT_H
#define HORO_C_CHECKPOINT_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* horo_checkpoint_tensor.kind */
enum {
  HORO_REPLICATED = 0, /* equal on all ranks: each rank writes some rows of it */
  HORO_PER_RANK = 1,   /* ranks may have different values: that of rank 0 is written */
  HORO_SHARDED = 2     /* each rank has some rows, and the ranks together have each row once */
};

typedef struct {
  uint32_t struct_bytes;
  const char* name;     /* UTF-8, unique among the tensors */
  const char* dtype;    /* torch's word: "float32", "bfloat16", "bool", ... */
  const int64_t* shape; /* of the whole tensor; null if dims is 0 */
  uint32_t dims;
  int32_t kind;
  const int64_t* intervals; /* sharded: pairs (start, stop) of rows that this rank has, ascending; else null */
  uint32_t interval_count;  /* pairs */
  int32_t alias_of;         /* place in the array of the tensor with the same memory, before this one; -1: none */
  void* data;     /* horo_checkpoint_load() writes to it: the rows of the intervals packed, or all rows; else null */
  int32_t is_new; /* 1: the caller reads data after a horo_checkpoint_load() that has not failed, and not before */
} horo_checkpoint_tensor;

/* Writes checkpoints of this rank's job, one after the other, by a thread of its own. Calls on one saver are made by
 * one thread at a time, except for horo_save_wait, horo_save_progress_of and horo_save_give_up. */
typedef struct horo_saver horo_saver;
HORO_API horo_saver* horo_saver_make(void);
/* Waits for the save that is being written, and gives up one that has not started. Blocks: as horo_save_wait. */
HORO_API void horo_saver_free(horo_saver* saver);
/* Makes the folder, if it is missing, and holds its file .lock until the saver is freed, horo_saver_unlock, or a save
 * that this rank begins as another rank than rank 0: as the option `lock` does, for rank 0 before it reads what is
 * there. A checkpoint that a killed job was about to replace gets its name back. Not collective. Blocks, up to 5 s
 * where another job holds it. HORO_INTERNAL: another job holds it, or the folder cannot be written. */
HORO_API int32_t horo_saver_lock(horo_saver* saver, const char* folder);
/* Gives the file .lock back: this rank leaves the job, and another one is to be its rank 0. The next horo_save_begin
 * with the option `lock` takes it again. */
HORO_API int32_t horo_saver_unlock(horo_saver* saver);

typedef struct {
  uint32_t struct_bytes;
  const char* path; /* the folder to write: it is there when all of it is on the disk, and not before */
  const char* rest; /* JSON that the index carries; that of rank 0 counts. Null: {} */
  uint64_t step;
  uint64_t seed;
  uint32_t keep; /* afterwards so many folders "step-*" beside it stay, of this step and before; 0: all */
  int32_t lock;  /* 1: holds the parent folder's file .lock until the saver is freed; a second job is refused */
} horo_save_options;
enum { HORO_SAVE_SKIPPED = 2 }; /* a result of horo_save_begin */
/* Begins a save: agrees with the other ranks on what each of them writes. Collective; blocks. HORO_OK: take the parts
 * and start it. HORO_SAVE_SKIPPED: on all ranks, because a rank still writes the save before. Negative: the same error
 * on all ranks, nothing was begun. */
HORO_API int32_t horo_save_begin(horo_saver* saver, horo_session* session, const horo_save_options* options,
                                 const horo_checkpoint_tensor* tensors, size_t count);
/* What this rank gives of tensor i: rows of its own, counted from 0 where it has intervals; a tensor without dimensions
 * has one row. *rows is 0 where it gives nothing. */
HORO_API int32_t horo_save_part(horo_saver* saver, size_t i, uint64_t* first_row, uint64_t* rows);
/* Copies those rows; data is the first of them, in memory of the host without gaps. A part is taken once. Blocks while
 * it copies. */
HORO_API int32_t horo_save_take(horo_saver* saver, size_t i, const void* data);
/* Everything is taken: writing begins in the background. The tensors may change. */
HORO_API int32_t horo_save_start(horo_saver* saver);
/* Waits until no save is being written. HORO_OK: the last one was published, or there was none. HORO_TIMEOUT:
 * timeout_ms (-1: none) has passed. HORO_INVALID_ARGUMENT: a save was begun, and is not started. HORO_INTERNAL: the
 * last one failed, with the reason. Blocks. */
HORO_API int32_t horo_save_wait(horo_saver* saver, int32_t timeout_ms);

typedef struct {
  uint32_t struct_bytes;
  int32_t is_writing;
  uint64_t bytes_done;     /* of this rank's part of the save that is being written, or was last */
  uint64_t bytes_total;    /* likewise */
  uint64_t published;      /* saves of this saver that were published */
  uint64_t published_step; /* of the last of them */
  double seconds_copy;     /* of the last save: in horo_save_take */
  double seconds_write;    /* of the last save: from horo_save_start to its end, or until now */
} horo_save_progress;
HORO_API int32_t horo_save_progress_of(horo_saver* saver, horo_save_progress* progress);
/* The save that is being written fails with this reason, unless it is being published; without one, no effect. Returns
 * at once. Of a save that was begun and is not started, the reason is written to a file for the other ranks, which may
 * block as long as their file system does. */
HORO_API int32_t horo_save_give_up(horo_saver* saver, const char* reason);

/* One thread at a time uses it. */
typedef struct horo_checkpoint horo_checkpoint;
/* Checks the index, and size and header of each part. Null: it is no whole checkpoint; the error names the file. */
HORO_API horo_checkpoint* horo_checkpoint_open(const char* path);
/* The index, JSON. Valid until the checkpoint is closed. */
HORO_API const char* horo_checkpoint_index(horo_checkpoint* checkpoint);
/* Reads tensors. Collective; the ranks ask for the same tensors, and may ask for different rows. The disk or file
 * server reads each byte once. All bytes are verified; verify_first: all of them, each by one rank, before the first
 * byte is written to a tensor that is not is_new on all ranks; their blocks are read twice (the second time mostly from
 * memory). Blocks. The same result on
 * all ranks. HORO_INVALID_ARGUMENT: the checkpoint has no tensor of this name, or another dtype or shape; nothing was
 * written. Another error without verify_first: some tensors may have bytes of the files, damaged ones among them. */
HORO_API int32_t horo_checkpoint_load(horo_checkpoint* checkpoint, horo_session* session,
                                      const horo_checkpoint_tensor* tensors, size_t count, int32_t verify_first);
/* Verifies all blocks, in this process alone. Blocks. */
HORO_API int32_t horo_checkpoint_verify(horo_checkpoint* checkpoint);
HORO_API void horo_checkpoint_close(horo_checkpoint* checkpoint);
/* The checkpoints in a folder, the newest first: a JSON list of {"path", "step", "bytes", "error"}. error: why it is
 * not whole, or null; step and bytes are null where they are not known. An empty list where there is no such folder.
 * Contents of blocks are not read. Valid as an error text is. Blocks. */
HORO_API const char* horo_checkpoint_list(const char* folder);

#ifdef __cplusplus
}
#endif
#endif /* HORO_C_CHECKPOINT_H */
