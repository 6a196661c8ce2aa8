// `horo checkpoint`: what is in a folder of checkpoints, and whether it is whole.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace horo::tools {

struct CheckpointOptions {
  std::string folder;              // list
  std::vector<std::string> paths;  // inspect, verify
  std::string from, to;            // convert
  std::string step;                // convert, of what is no checkpoint of horo
  bool trusts = false;             // convert reads pickles
  bool json = false;
};

inline constexpr int kDamaged = 1;  // exit code: a checkpoint is not whole, or cannot be read

// These return the exit code: 0 or kDamaged, with a line on stderr for each fault.
int list_checkpoints(const CheckpointOptions& options, std::ostream& out);
int inspect_checkpoint(const CheckpointOptions& options, std::ostream& out);
int verify_checkpoints(const CheckpointOptions& options, std::ostream& out);
// Between a checkpoint and one file of safetensors; for all other paths Python replaces this process. Throws
// std::invalid_argument (--step, or the name of what is made) or std::runtime_error (TO exists; files; damage).
int convert_checkpoint(const CheckpointOptions& options, std::ostream& out);

}  // namespace horo::tools
