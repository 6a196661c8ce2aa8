// Story: the events of a job, as `horo run` has printed them, with their times. Only the last ones are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace horo::tools {

struct StoryLine {
  double time_s = 0;  // since 1970
  std::string text;   // as printable() of elastic/texts.h
};

class Story {
 public:
  static constexpr std::size_t kMostLines = 1'000;

  // Each line of the text is one of the story.
  void add(std::string_view text, double time_s);
  const std::deque<StoryLine>& lines() const { return lines_; }
  std::uint64_t dropped() const { return dropped_; }  // lines before those

 private:
  std::deque<StoryLine> lines_;
  std::uint64_t dropped_ = 0;
};

double seconds_since_1970();

}  // namespace horo::tools
