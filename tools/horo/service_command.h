// `horo rendezvous`, and `horo agent`, which `horo run` starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace horo::tools {

struct RendezvousCommand {
  std::string addr;                   // host:port to listen at
  std::string key_file;               // empty: HORO_KEY_FD or HORO_KEY_FILE
  std::string folder;                 // of what outlives it
  std::vector<int> memory;            // instead of the folder: see RendezvousOptions
  std::optional<std::uint32_t> home;  // the host whose horo run has started it
};
// Serves until SIGTERM or SIGINT. Returns the exit code. Throws as serve_rendezvous() does.
int run_rendezvous(const RendezvousCommand& command);

struct AgentCommand {
  int guard_fd = -1;
  std::string rendezvous;
  std::uint32_t host = 0;
  std::uint64_t incarnation = 0;
};
int run_agent(const AgentCommand& command);

}  // namespace horo::tools
