// Properties of the kinds of collectives.
#pragma once

#include "horo/base/types.h"

namespace horo {

// True for kinds that combine values with a ReduceOp; the other kinds move values unchanged.
constexpr bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter;
}

// True for kinds with a root. The root of a send_recv is its sender.
constexpr bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce || kind == CollectiveKind::kGather ||
         kind == CollectiveKind::kScatter || kind == CollectiveKind::kSendRecv;
}

}  // namespace horo
