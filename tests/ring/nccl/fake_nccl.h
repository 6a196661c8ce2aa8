// The fake of NCCL (fake_nccl.cc): what tests ask it.
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
extern "C" {

// Communicators of this process that were made and not aborted, and pairs of collectives that two devices of this
// process have had enqueued in opposite orders.
struct FakeNcclCounts {
  std::int64_t comms, cycles;
};
void fake_nccl_counts(FakeNcclCounts* counts);
}
#pragma GCC visibility pop
