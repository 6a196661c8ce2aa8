// The public C++ API of horo. Start at Session. Checkpoints have headers of their own, as the session does not know
// them: horo/checkpoint/save.h, load.h and catalog.h.
#pragma once

#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "horo/base/error.h"
#include "horo/base/hash.h"
#include "horo/base/run_place.h"
#include "horo/base/settings.h"
#include "horo/base/tensor_spec.h"
#include "horo/base/types.h"
#include "horo/base/version.h"
#include "horo/engine/ready_times.h"
#include "horo/rejoin.h"
#include "horo/session.h"
#include "horo/tensors/work.h"
#include "ring/codec/codec.h"
#include "ring/reduce/custom_op.h"
