// The nearest right word, for messages about a wrong one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace horo {

// The first candidate that is fewest edits away (Damerau's distance: a letter more, less, another, or two exchanged);
// nothing if more than a third of the letters and one would change. Upper and lower case, and - and _, are equal.
std::optional<std::string> nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean tcp?", or nothing to say.
std::string nearest_text(std::string_view word, const std::vector<std::string>& candidates);

// The words of "tcp, shm or auto".
std::vector<std::string> words_in(std::string_view choices);

}  // namespace horo
