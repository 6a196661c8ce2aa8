#include "horo/tensors/requests.h"

namespace horo {

TensorSpec add_set_request(const std::vector<int>& ranks, const std::string& name, bool shrinks, bool by_members) {
  TensorSpec spec;
  spec.kind = CollectiveKind::kAddSet;
  spec.by_members = by_members;
  spec.set_name = name;
  spec.shrinks = shrinks;
  spec.shape.assign(ranks.begin(), ranks.end());
  return spec;
}

TensorSpec remove_set_request(std::uint32_t set) {
  TensorSpec spec;
  spec.kind = CollectiveKind::kRemoveSet;
  spec.shape = {set};
  return spec;
}

TensorSpec join_request(std::uint32_t set) {
  TensorSpec spec;
  spec.kind = CollectiveKind::kJoin;
  spec.set = set;
  return spec;
}

TensorSpec rebuild_request() {
  TensorSpec spec;
  spec.kind = CollectiveKind::kRebuild;
  return spec;
}

}  // namespace horo
