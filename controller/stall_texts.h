// The texts of stall diagnosis: which ranks have submitted a tensor, which have not and for how long, what the missing
// ranks wait for instead, and at which call sites.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "controller/diagnosis_round.h"
#include "horo/base/tensor_spec.h"
#include "horo/base/time.h"

namespace horo {

// Tensors that the same ranks have submitted and the same ranks have not.
struct StallGroup {
  std::vector<std::string> names;
  std::vector<int> submitted;
  std::vector<int> missing;
  bool partly = false;  // tensors of a known plan: the missing ranks may have submitted some of them
  Duration waited{};
  std::string of_set = "";  // of_set_text()
};
// A tensor or join that a rank has submitted and others have not.
struct PendingWait {
  std::string what;  // "'x'", or "join"
  std::vector<int> missing;
  std::string of_set = "";
};
// The waits of a missing rank.
struct RankWaits {
  int rank = 0;
  std::vector<PendingWait> shown;
  std::size_t more = 0;  // number of others
};

// One line, of at most a few hundred bytes beside the names and the call sites. sites: of the missing ranks.
std::string warning_text(const std::vector<StallGroup>& groups, const std::vector<RankWaits>& waits,
                         const std::vector<CallSites>& sites, const CoordinatorConfig& config);

// The head of an error, before stall_text(): "all_reduce average float32 [4] of tensor 'x'".
std::string stall_head(const TensorSpec& spec, const std::string& of_set = "");
std::string stall_text(const StallGroup& group, const std::vector<RankWaits>& waits, std::chrono::milliseconds limit);
// deadlocked: the ranks that wait for one another.
std::string deadlock_text(const StallGroup& group, const std::vector<RankWaits>& waits,
                          const std::vector<int>& deadlocked, std::chrono::milliseconds limit);
// The failure of an incomplete unit whose submitted tensors are ready on all ranks.
std::string unit_text(std::chrono::milliseconds limit);
// The lines after the error: the call sites of the ranks that submitted it, and of the missing ranks. Empty if no rank
// is a Python program.
std::string call_sites_text(const std::vector<CallSites>& waiting, const std::vector<CallSites>& missing,
                            std::chrono::milliseconds answer_timeout);

}  // namespace horo
