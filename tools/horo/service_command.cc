#include "tools/horo/service_command.h"

#include <malloc.h>

#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "elastic/service/agent.h"
#include "elastic/service/rendezvous_server.h"
#include "horo/base/config.h"

namespace horo::tools {
namespace {

constexpr const char* kJobName = "horo";

JobKey service_key(const std::string& key_file) {
  const auto get = [&](const char* name) -> const char* {
    const std::string_view text(name);
    if (!key_file.empty()) return text == "HORO_KEY_FILE" ? key_file.c_str() : nullptr;
    return text == "HORO_KEY_FILE" || text == "HORO_KEY_FD" ? std::getenv(name) : nullptr;
  };
  const auto key = config_from(get).key;
  if (!key) {
    throw std::invalid_argument(
        "expected --key-file FILE (or HORO_KEY_FILE), the key that all hosts of the job have: make one with\n"
        "    head -c 32 /dev/urandom > key; chmod 600 key");
  }
  return *key;
}

}  // namespace

// Each thread of gRPC would get an arena of its own, and a rendezvous that serves many jobs would keep what the largest
// of them needed in each: 25 KiB more per job, instead of none.
int run_rendezvous(const RendezvousCommand& command) {
  ::mallopt(M_ARENA_MAX, 1);
  if (command.folder.empty() && command.memory.empty())
    throw std::invalid_argument(
        "--folder: expected a folder of what outlives this process; it is made if it is missing");
  return serve_rendezvous(
      {command.addr, command.folder, command.memory, service_key(command.key_file), kJobName, command.home});
}

int run_agent(const AgentCommand& command) {
  return horo::run_agent(
      {command.guard_fd, command.rendezvous, command.host, command.incarnation, service_key(""), kJobName});
}

}  // namespace horo::tools
