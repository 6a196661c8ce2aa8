// Ending: Works that end without a collective.
#pragma once

#include <cstdint>
#include <vector>

#include "horo/base/failure.h"
#include "horo/tensors/item.h"
#include "horo/tensors/tensor_table.h"

namespace horo {

struct Ending {
  std::vector<Item> items;
  FailurePtr failure;                     // not null: the Works fail. Else they finish with an Outcome of
  std::vector<std::int64_t> counts = {};  //   these counts and
  bool absent = false;                    //   this flag
};

// Retires the items and ends their Works. Throws (memory) before it retires any.
void end_all(TensorTable& tensor_table, const Ending& ending);

}  // namespace horo
