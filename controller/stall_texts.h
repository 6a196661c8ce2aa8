// The words about tensors that some ranks have submitted and others have not: who, for how long, what the others do
// instead and where.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "controller/diagnosis_round.h"
#include "horo/base/tensor_spec.h"
#include "horo/base/time.h"

namespace horo {

// Tensors that wait for the same ranks.
struct StallGroup {
  std::vector<std::string> names;
  std::vector<int> submitted;
  std::vector<int> missing;
  bool partly = false;  // a known plan: the missing ranks may have some of them
  Duration waited{};
  std::string of_set = "";  // of_set_text()
};
// What a rank has submitted that others have not.
struct PendingWait {
  std::string what;  // "'x'", or "join"
  std::vector<int> missing;
  std::string of_set = "";
};
struct RankWaits {
  int rank = 0;
  std::vector<PendingWait> shown;
  std::size_t more = 0;
};

// One line, whatever stalls.
std::string warning_text(const std::vector<StallGroup>& groups, const std::vector<RankWaits>& waits,
                         std::chrono::milliseconds limit);

// Before "head" + text: "all_reduce average float32 [4] of tensor 'x'".
std::string stall_head(const TensorSpec& spec, const std::string& of_set = "");
std::string stall_text(const StallGroup& group, const std::vector<RankWaits>& waits, std::chrono::milliseconds limit);
// Of a unit whose tensors are ready everywhere, as far as there are any.
std::string unit_text(std::chrono::milliseconds limit);
// The lines after it: where the ranks are that wait, and those that are missing.
std::string call_sites_text(const std::vector<CallSites>& waiting, const std::vector<CallSites>& missing,
                            std::chrono::milliseconds answer_timeout);

}  // namespace horo
