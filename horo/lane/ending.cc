#include "horo/lane/ending.h"

#include <utility>

namespace horo {

void end_all(TensorTable& tensor_table, const Ending& ending) {
  std::vector<Outcome> outcomes(ending.items.size());
  for (Outcome& outcome : outcomes) {
    outcome.absent = ending.absent;
    outcome.counts = ending.counts;
  }
  tensor_table.retire(ending.items);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    Work& work = *ending.items[i].work;
    if (ending.failure) {
      work.fail(ending.failure);
    } else {
      work.finish(std::move(outcomes[i]));
    }
  }
}

}  // namespace horo
