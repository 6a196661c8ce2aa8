// Builds the sentences of errors and log lines: say("rank ", 3, " is gone").
#pragma once

#include <span>
#include <sstream>
#include <string>

namespace horo {

template <class... Parts>
std::string say(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// "rank 2" or "ranks 2, 3".
inline std::string say_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace horo
