// The agent of a host: passes messages between the host's guard and the rendezvous of the job. It knows nothing that
// the guard cannot tell it again, so it may end at any time.
#pragma once

#include <cstdint>
#include <string>

#include "horo/base/auth.h"

namespace horo {

struct AgentOptions {
  int guard_fd = -1;       // a SOCK_SEQPACKET socket; its first message is the JobSpec
  std::string rendezvous;  // host:port
  std::uint32_t host = 0;  // of the job
  std::uint64_t incarnation = 0;
  JobKey token{};  // that all hosts of the job have
  std::string job;
};

// Runs until the guard closes its end, and returns 0; 1 if the rendezvous refuses this host, after it has told the
// guard. Throws std::system_error or ProtocolError if the socket does not work.
int run_agent(const AgentOptions& options);

}  // namespace horo
