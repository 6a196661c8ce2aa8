// Processes of other ranks: which they are, and a descriptor that tells when one has ended, even if a child of its
// holds its connections open.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ring/os/socket.h"

namespace horo {

// A process, so that another one may find it again and nobody else under its number.
struct ProcessMark {
  std::string host;   // its name, for texts
  std::string space;  // boot and pid namespace, in which pid counts; "": not known
  std::int64_t pid = 0;
  std::uint64_t started = 0;  // in clock ticks since boot
  bool operator==(const ProcessMark&) const = default;
};
ProcessMark this_process();
// ProcessMark::started of a process of this pid namespace; nothing if there is none.
std::optional<std::uint64_t> process_start(std::int64_t pid);

// "its process ended without a goodbye (seen by rank 3)".
std::string say_ended(int seen_by);

// A rank whose process is watched: poll() finds the descriptor readable when it has ended.
struct Watched {
  int rank = 0;
  Fd fd;
};

// Those of `marks`, by rank, whose end this process can see: of this host and pid namespace, and not this process. One
// that has ended already is readable at once. None where the kernel has no pidfd_open (Linux 5.3).
std::vector<Watched> watch_processes(std::span<const ProcessMark> marks);

}  // namespace horo
