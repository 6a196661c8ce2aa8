/* The C ABI of horo, for bindings and extensions. Version 1.
 * No C++ type and no exception crosses it. A call that can fail returns a negative horo_status, or a null
 * pointer; horo_error_text() in the same thread returns the reason, valid until that thread's next horo call. Structs
 * begin with their own size, so that later versions can add fields at the end. Enumerations are fixed numbers.
 * Threads: every call may be made by any thread, except that horo_free() must be the last call on its session. Calls
 * that may block are marked so; all others return in microseconds, so a caller may keep an interpreter lock. The first
 * call of a process that names a CUDA tensor is the exception: it starts the driver, which may take seconds. */
#ifndef HORO_C_H
#define HORO_C_H

#include "horo_c/checkpoint.h"
#include "horo_c/custom.h"
#include "horo_c/grow.h"
#include "horo_c/memory.h"
#include "horo_c/observe.h"
#include "horo_c/round.h"
#include "horo_c/session.h"
#include "horo_c/set.h"
#include "horo_c/step.h"
#include "horo_c/tensor.h"
#include "horo_c/types.h"

#endif /* HORO_C_H */
