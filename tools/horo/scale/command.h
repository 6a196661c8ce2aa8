// `horo scale`: how a job of the user gets faster with more ranks, measured by its own script.
#pragma once

#include <string>
#include <vector>

namespace horo::tools {

struct ScaleOptions {
  std::string sizes;    // "1,2,4"
  double seconds = 40;  // of steps, of each run
  int rounds = 3;
  bool is_strong = false;
  double first_step_s = 30;  // after its start a script has a step
  std::string out = "scale";
  std::string cwd;                   // of the ranks; empty: a folder for each run
  std::string bind_to = "auto";      // as horo run
  std::vector<std::string> program;  // with its arguments
  std::vector<std::string> words;    // the whole command line, as given
  std::string report_folder;
};

// Measures and writes the folder; prints the table on stdout, and what it is doing on stderr. Returns 0; 1 if a number
// of ranks has no figures or the numbers cannot be compared; 128 + the signal after an interrupt. Throws
// std::invalid_argument or std::system_error. This process must have one thread only.
int run_scale(const ScaleOptions& options);

// Makes the table and the page again, from scale.json. Returns 0. Throws std::invalid_argument.
int report_scale(const ScaleOptions& options);

}  // namespace horo::tools
