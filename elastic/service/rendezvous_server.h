// The rendezvous of an elastic job as a process: gRPC with mutual TLS around RendezvousCore.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "horo/base/auth.h"

namespace horo {

struct RendezvousOptions {
  std::string address;                // host:port to listen at; that interface alone
  std::string folder;                 // of the record and of the job's authority; made with mode 0700 if it is missing
  std::vector<int> memory;            // instead of the folder: a file for the authority, and two for the record
  JobKey token{};                     // that all hosts of the job have
  std::string job;                    // its name, the same on all hosts
  std::optional<std::uint32_t> home;  // see RendezvousCore
};

// Serves until SIGTERM or SIGINT, and returns 0. Blocks these signals in the calling thread, which must be the only one
// of the process. Throws std::invalid_argument (a setting cannot work, by name), std::system_error (storage), or
// StoreLost.
int serve_rendezvous(const RendezvousOptions& options);

}  // namespace horo
