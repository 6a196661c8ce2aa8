#include "tools/horo/run/story.h"

#include <chrono>

#include "elastic/texts.h"

namespace horo::tools {

void Story::add(std::string_view text, double time_s) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines_.push_back({time_s, printable(text.substr(0, end))});
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (lines_.size() <= kMostLines) continue;
    lines_.pop_front();
    ++dropped_;
  }
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace horo::tools
