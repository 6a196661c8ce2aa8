// Coded: runs the jobs of a lane whose tensors have a codec. It keeps the residuals of each tensor and scratch memory.
// Names may be new for ever, so of tensors that are not stepwise only so many have residuals: above that, those of the
// names that ran least recently are freed. All ranks of the lane have the same jobs in the same order, so they free the
// same ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "horo/lane/job.h"
#include "ring/group/coded_all_reduce.h"

namespace horo {

// Only the thread that runs the lane's tasks.
class Coded {
 public:
  explicit Coded(std::size_t most_singles) : most_singles_(most_singles) {}

  // Runs all tensors of the job from and to the caller's memory. They need no bucket, because each tensor is cut into
  // blocks by itself. Throws what run_coded throws.
  void run(const Job& job, const Participants& participants, const Collective& collective, const Codec& codec);

 private:
  struct Single {
    CodedState state;
    std::uint64_t used = 0;  // number of its last use
  };

  CodedState* state_of(const TensorSpec& spec, const Codec& codec);
  void free_least_used();

  std::size_t most_singles_;
  // Residuals, by codec and name of the tensor: of stepwise tensors, and of others.
  std::map<std::string, CodedState> states_;
  std::map<std::string, Single> singles_;
  std::uint64_t uses_ = 0;  // of singles
  CodedScratch scratch_;
};

}  // namespace horo
