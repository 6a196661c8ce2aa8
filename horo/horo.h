// The public C++ API of horo. Start at Session.
#pragma once

#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "horo/base/error.h"
#include "horo/base/tensor_spec.h"
#include "horo/base/types.h"
#include "horo/base/version.h"
#include "horo/ready_times.h"
#include "horo/session.h"
#include "horo/work.h"
#include "ring/codec.h"
#include "ring/custom_op.h"
