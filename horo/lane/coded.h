// Coded: what a lane needs for tensors that travel as a codec's bytes: the residuals of each, and memory.
#pragma once

#include <map>
#include <string>

#include "horo/lane/job.h"
#include "ring/group/coded_all_reduce.h"

namespace horo {

// The lane's thread alone.
class Coded {
 public:
  // All tensors of the job, straight from and to the caller's memory: they need no bucket, because each is cut for
  // itself. Throws what run_coded throws.
  void run(const Job& job, const JobGroup& party, const Collective& collective, const Codec& codec);

 private:
  CodedState* state_of(const TensorSpec& spec, const Codec& codec);

  std::map<std::string, CodedState> states_;  // by codec and name: what the wire lost of each tensor
  CodedScratch scratch_;
};

}  // namespace horo
