// Ending: Works that end without a collective.
#pragma once

#include <cstdint>
#include <vector>

#include "horo/base/failure.h"
#include "horo/tensors/item.h"
#include "horo/tensors/tensor_table.h"

namespace horo {

// A round that will not be committed.
struct FailedRound {
  std::uint64_t stream = 0;  // TensorSpec::round_stream
  std::uint64_t round = 0;   // Item::round
};

struct Ending {
  std::vector<Item> items;
  FailurePtr failure;                     // not null: the Works fail. Else they finish with an Outcome of
  std::vector<std::int64_t> counts = {};  //   these counts and
  bool absent = false;                    //   this flag
  FailedRound failed_round = {};          // of a stream: its results that are held fail, too
};

// Retires the items and ends their Works. Throws (memory) before it retires any.
void end_all(TensorTable& tensor_table, const Ending& ending);

}  // namespace horo
