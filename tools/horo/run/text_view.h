// How a text is shown: on which terminal, and how much of it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace horo::tools {

struct TextView {
  std::size_t events = SIZE_MAX;  // the last ones of the story
  std::size_t width = 0;          // of the terminal; 0: lines have any width
  std::size_t height = 0;         // of the terminal; 0: any
  bool has_colours = false;
  bool is_top = false;  // steps come first; of the ranks those that do not run
};

}  // namespace horo::tools
