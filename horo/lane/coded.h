// Coded: runs the jobs of a lane whose tensors have a codec. It keeps the residuals of each tensor and scratch memory.
#pragma once

#include <map>
#include <string>

#include "horo/lane/job.h"
#include "ring/group/coded_all_reduce.h"

namespace horo {

// Only the thread that runs the lane's tasks.
class Coded {
 public:
  // Runs all tensors of the job from and to the caller's memory. They need no bucket, because each tensor is cut into
  // blocks by itself. Throws what run_coded throws.
  void run(const Job& job, const Participants& participants, const Collective& collective, const Codec& codec);

 private:
  CodedState* state_of(const TensorSpec& spec, const Codec& codec);

  std::map<std::string, CodedState> states_;  // residuals, by codec and name of the tensor
  CodedScratch scratch_;
};

}  // namespace horo
