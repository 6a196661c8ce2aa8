// The specs of requests: calls that change process sets or epochs and move no data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horo/base/tensor_spec.h"

namespace horo {

TensorSpec add_set_request(const std::vector<int>& ranks, const std::string& name, bool shrinks, bool by_members);
TensorSpec remove_set_request(std::uint32_t set);
TensorSpec join_request(std::uint32_t set);
TensorSpec rebuild_request();

}  // namespace horo
