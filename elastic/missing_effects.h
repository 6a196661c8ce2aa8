// What some members of an epoch have applied of the leader's stream, and others have not.
#pragma once

#include <optional>
#include <vector>

#include "elastic/messages.h"

namespace horo {

// Of members that are frozen, one or more. All of them have applied a prefix of one stream. Nothing: it is more than is
// kept.
std::optional<Effects> missing_effects(const std::vector<const Frozen*>& members);

}  // namespace horo
