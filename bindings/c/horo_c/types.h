/* Numbers of the C ABI, and the session's handle. */
#ifndef HORO_C_TYPES_H
#define HORO_C_TYPES_H

#include <stddef.h>
#include <stdint.h>

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
/* device_type */
enum { HORO_HOST = 0, HORO_CUDA = 1 };
/* order */
enum { HORO_CANONICAL = 0, HORO_FAST = 1 };

typedef struct horo_session horo_session;

#endif /* HORO_C_TYPES_H */
