// EndedEpochs: frees what epochs leave behind. To give back shared memory takes time for each MiB, for which the ranks
// would wait between two epochs.
#pragma once

#include <memory>

#include "horo/engine/epoch_state.h"

namespace horo {

class EndedEpochs {
 public:
  EndedEpochs();
  // Waits until all is freed. What ends later is freed by the thread that uses it last.
  ~EndedEpochs();
  EndedEpochs(const EndedEpochs&) = delete;
  EndedEpochs& operator=(const EndedEpochs&) = delete;

  // The result is freed by a thread of this object after its last use, in whichever thread that is; one at a time.
  std::shared_ptr<EpochState> own(std::unique_ptr<EpochState> epoch) const;

 private:
  class Freeing;
  const std::shared_ptr<Freeing> freeing_;
};

}  // namespace horo
