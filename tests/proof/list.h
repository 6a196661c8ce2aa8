// Lists of values as text.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace horo::proof {

template <class T>
std::string list(const std::vector<T>& values) {
  std::ostringstream out;
  for (std::size_t i = 0; i < values.size(); ++i) out << (i > 0 ? " " : "") << values[i];
  return out.str();
}

}  // namespace horo::proof
