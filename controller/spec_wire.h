// Wire format of tensor names and specs, in both kinds of messages.
#pragma once

#include "controller/messages.h"
#include "horo/base/wire.h"

namespace horo {

void write_name(ByteWriter& out, const TensorName& name);
TensorName read_name(ByteReader& in, const CoordinatorConfig& config);

void write_spec(ByteWriter& out, const TensorSpec& spec);
TensorSpec read_spec(ByteReader& in, const CoordinatorConfig& config);

// One more than the greatest number of a tensor or plan that this configuration allows.
std::uint32_t id_limit(const CoordinatorConfig& config);
std::uint32_t plan_limit(const CoordinatorConfig& config);

}  // namespace horo
