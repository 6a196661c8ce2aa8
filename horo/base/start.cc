// An address given by the user takes precedence. Ranks that a launcher started on one host need none: they share a
// kernel. Ranks on several hosts use the caller's exchange and authenticate themselves with the user's key.
#include "horo/base/start.h"

#include <map>
#include <stdexcept>

namespace horo {
namespace {

constexpr const char* kAddrAndKey =
    "HORO_ADDR=host:port, where rank 0 can listen, and HORO_KEY_FILE=a file of 32 random bytes, mode 0600, with the "
    "same content on every host";

std::string starter_text(const Launcher& launcher) {
  return launcher.name + " (" + launcher.found + ")";
}

[[noreturn]] void refuse_plain(const Config& config) {
  throw std::invalid_argument("HORO_ADDR is not set: expected host:port where rank 0 listens, because HORO_SIZE=" +
                              std::to_string(config.size));
}

[[noreturn]] void refuse_nameless(const Launcher& launcher) {
  throw std::invalid_argument(starter_text(launcher) +
                              " gives this start of the ranks no name: set HORO_JOB to one that no other job of this "
                              "user on this host has, or HORO_ADDR=host:port, where rank 0 can listen");
}

[[noreturn]] void refuse_several_hosts(const Launcher& launcher) {
  const std::string way_out =
      launcher.hub.empty() ? "set " : "horo.torch.init() finds them through " + launcher.name + "'s store; else set ";
  throw std::invalid_argument(starter_text(launcher) + " started ranks on several hosts: " + way_out + kAddrAndKey);
}

[[noreturn]] void refuse_keyless(const Launcher& launcher) {
  throw std::invalid_argument(
      starter_text(launcher) +
      " started ranks on several hosts, whose connections need a job key, and a launcher's "
      "store is open to every process that reaches it: set HORO_KEY_FILE=a file of 32 random bytes, mode 0600, "
      "with the same content on every host");
}

}  // namespace

Lookup with_defaults_of(const Launcher& launcher, const Lookup& get) {
  if (launcher.name.empty()) return get;
  const std::map<std::string, std::string> values = {{"HORO_RANK", std::to_string(launcher.rank)},
                                                     {"HORO_SIZE", std::to_string(launcher.size)},
                                                     {"HORO_LOCAL_RANK", std::to_string(launcher.local_rank)},
                                                     {"HORO_LOCAL_SIZE", std::to_string(launcher.local_size)},
                                                     {"HORO_INCARNATION", std::to_string(launcher.incarnation)}};
  return [values, get](const char* name) -> const char* {
    if (const char* value = get(name)) return value;
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  };
}

MeetBy meet_by_of(const Config& config, bool has_exchange) {
  const Launcher& launcher = config.launcher;
  if (config.size == 1 || !config.addr.empty()) return MeetBy::kAddr;
  if (launcher.name.empty()) {
    if (!has_exchange) refuse_plain(config);
    return MeetBy::kExchange;
  }
  if (config.local_size == config.size) {
    if (launcher.job.empty() && config.job == Config().job) refuse_nameless(launcher);
    return MeetBy::kLocal;
  }
  if (!has_exchange || launcher.hub.empty()) refuse_several_hosts(launcher);
  if (!config.key) refuse_keyless(launcher);
  return MeetBy::kExchange;
}

}  // namespace horo
