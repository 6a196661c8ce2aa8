/* Operations and codecs of the caller. */
#ifndef HORO_C_CUSTOM_H
#define HORO_C_CUSTOM_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* Registers an operation by name in this session, before specs that name it; all ranks register it alike. The struct is
 * copied; user must live as long as the session. */
HORO_API int32_t horo_register_op(horo_session* session, const char* name, const horo_op* op);
/* "fp16", "bf16", "fp8" and "int8" are built in. */
HORO_API int32_t horo_register_codec(horo_session* session, const char* name, const horo_codec* codec);

#ifdef __cplusplus
}
#endif
#endif /* HORO_C_CUSTOM_H */
