// The words of `horo run` before the parser reads them: those of torchrun, horovodrun and mpirun in horo's own, the
// options of --config, and wrong words with the nearest right one.
#pragma once

#include <string>
#include <vector>

namespace horo::tools {

struct KnownOption {
  std::vector<std::string> names;  // "--ranks", "-n"
  bool takes_value = false;
  bool is_hidden = false;  // one horo program gives it to another
  bool is_repeatable = false;
};

// `words`: those after `horo run`. The program and its arguments are not changed. Throws std::invalid_argument: a word
// that is no option, one whose meaning horo run does not have, or a wrong file of --config.
std::vector<std::string> own_words(const std::vector<std::string>& words, const std::vector<KnownOption>& options);

// Python for a script or a module that is named without one: that of this installation, else python3.
std::string python_of_ranks();

}  // namespace horo::tools
