// The processes of other ranks: their identity, and a descriptor that becomes readable when one has ended, even if a
// child of the process holds its connections open.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ring/os/socket.h"

namespace horo {

// Identifies a process to other processes, also after its pid has been reused.
struct ProcessIdentity {
  std::string host;   // its name, for texts
  std::string space;  // boot and pid namespace, within which pid is valid; "": unknown
  std::int64_t pid = 0;
  std::uint64_t started = 0;  // in clock ticks since boot
  bool operator==(const ProcessIdentity&) const = default;
};
ProcessIdentity this_process();
// ProcessIdentity::started of a process of this pid namespace; empty if there is no such process.
std::optional<std::uint64_t> process_start(std::int64_t pid);

// The text "its process ended without a goodbye (seen by rank 3)".
std::string say_ended(int seen_by);

// A watched rank. poll() reports the descriptor as readable when the rank's process has ended.
struct Watched {
  int rank = 0;
  Fd fd;
};

// Opens descriptors for those of `marks` (by rank) whose end this process can see: other processes of this host and pid
// namespace. The descriptor of a process that has ended already is readable at once. Empty if the kernel has no
// pidfd_open (Linux 5.3).
std::vector<Watched> watch_processes(std::span<const ProcessIdentity> marks);

}  // namespace horo
