// The message with which settings are refused.
#pragma once

#include <stdexcept>
#include <string>

namespace horo {

// What std::invalid_argument says, or "accepted".
template <class Call>
std::string refusal_of(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace horo
