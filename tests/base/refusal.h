// The message of a refused setting.
#pragma once

#include <stdexcept>
#include <string>

namespace horo {

// The text of std::invalid_argument, or "accepted".
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
