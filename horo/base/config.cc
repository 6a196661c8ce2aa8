// Checks that involve several settings, which the table of settings cannot express, and the reading of the job key.
#include "horo/base/config.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string_view>

#include "horo/base/horovod_variables.h"
#include "horo/base/key_file.h"
#include "horo/base/log.h"
#include "horo/base/mutex.h"
#include "horo/base/run_place.h"
#include "horo/base/settings.h"
#include "horo/base/start.h"

namespace horo {
namespace {

std::string number_text(int number) {
  return std::to_string(number);
}

void check_ranks(const Lookup& get, const Config& config) {
  const bool has_rank = get("HORO_RANK") != nullptr;
  const bool has_size = get("HORO_SIZE") != nullptr;
  if (has_rank != has_size) {
    throw std::invalid_argument(has_rank ? "HORO_RANK is set and HORO_SIZE is not: expected both or none"
                                         : "HORO_SIZE is set and HORO_RANK is not: expected both or none");
  }
  if (static_cast<std::size_t>(config.size) > config.max_ranks) {
    refuse_setting("HORO_SIZE", number_text(config.size), "at most HORO_MAX_RANKS=" + std::to_string(config.max_ranks));
  }
  if (config.rank >= config.size) {
    refuse_setting("HORO_RANK", number_text(config.rank), "a rank below HORO_SIZE=" + number_text(config.size));
  }
}

void fit_local_ranks(const Lookup& get, Config& config) {
  if (get("HORO_LOCAL_RANK") == nullptr) config.local_rank = config.rank;
  if (get("HORO_LOCAL_SIZE") == nullptr) config.local_size = config.size;
  if (config.local_size > config.size) {
    refuse_setting("HORO_LOCAL_SIZE", number_text(config.local_size), "at most HORO_SIZE=" + number_text(config.size));
  }
  if (config.local_rank >= config.local_size) {
    refuse_setting("HORO_LOCAL_RANK", number_text(config.local_rank),
                   "a rank below HORO_LOCAL_SIZE=" + number_text(config.local_size) + " (the default is HORO_RANK)");
  }
}

// With MPI no memory is shared; the ranks keep their own sockets, for agreement and to detect ends.
void check_backend(Config& config) {
  if (config.backend != "mpi") return;
  if (config.transport == "shm")
    refuse_setting("HORO_TRANSPORT", "shm", "auto, or not to be set, with HORO_BACKEND=mpi");
  config.transport = "tcp";
}

bool is_port(std::string_view text) {
  unsigned port = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && stop == text.data() + text.size() && port >= 1 && port <= 65'535;
}

void check_addr(const Config& config) {
  if (config.addr.empty()) return;
  const std::size_t colon = config.addr.rfind(':');
  if (colon == std::string::npos || colon == 0 || !is_port(std::string_view(config.addr).substr(colon + 1))) {
    refuse_setting("HORO_ADDR", config.addr, "host:port with a port from 1 to 65535");
  }
}

void read_key(const Lookup& get, Config& config) {
  const char* descriptor = get("HORO_KEY_FD");
  const char* path = get("HORO_KEY_FILE");
  if (descriptor != nullptr && path != nullptr) {
    throw std::invalid_argument("HORO_KEY_FD and HORO_KEY_FILE are both set: expected one of them");
  }
  if (path != nullptr) config.key = key_from_file(path);
  if (descriptor != nullptr) config.key = key_from_inherited(descriptor);
}

// Warnings that this process has already logged.
class LoggedOnce {
 public:
  bool is_new(const std::string& text) {
    const MutexLock lock(mutex_);
    return texts_.insert(text).second;
  }

 private:
  Mutex mutex_;
  std::set<std::string> texts_ GUARDED_BY(mutex_);
};

// The ranks of a host usually have the same environment, so the host's first rank logs the warning, once; not what
// `horo run` has told.
void warn_of_what_is_not_taken(const Config& config) {
  static LoggedOnce said;
  std::vector<std::string> texts = unknown_settings_in_environment();
  if (const auto run = texts.empty() ? nullptr : find_run_place().table) {
    std::erase_if(texts, [&](const std::string& text) { return run->has_told(text); });
  }
  if (!config.launcher.remark.empty()) texts.push_back(config.launcher.remark);
  std::ranges::copy(horovod_remarks(config.size > 1), std::back_inserter(texts));
  for (const std::string& text : texts) {
    if (said.is_new(text)) log_warning(text);
  }
}

}  // namespace

Config config_from(const Lookup& environment, bool has_exchange) {
  Config config;
  config.launcher = detect_launcher(environment);
  const Lookup get = with_horovod_variables(with_defaults_of(config.launcher, environment));
  read_settings(get, config);
  check_ranks(get, config);
  fit_local_ranks(get, config);
  check_addr(config);
  check_backend(config);
  if (config.host_id.empty()) config.host_id = this_host_id();
  read_key(get, config);
  config.meet_by = meet_by_of(config, has_exchange);
  return config;
}

Config config_from_environment(const std::map<std::string, std::string>& given, bool has_exchange) {
  for (const auto& [name, value] : given) {
    if (const auto unknown = unknown_setting(name)) throw std::invalid_argument(*unknown);
    const Setting* setting = find_setting(name);
    if (setting == nullptr)
      throw std::invalid_argument("setting '" + name + "': expected a name that begins with HORO_");
    if (setting->environment_alone) throw std::invalid_argument(name + " can be set in the environment alone");
  }
  // A caller that gives the place of this rank names another world than the launcher's, as a group of some ranks does.
  const bool has_place = given.contains("HORO_RANK") && given.contains("HORO_SIZE");
  const auto get = [&given, has_place](const char* name) -> const char* {
    const auto found = given.find(name);
    if (found != given.end()) return found->second.c_str();
    return has_place && !std::string_view(name).starts_with("HORO") ? nullptr : std::getenv(name);
  };
  Config config = config_from(with_place_in_run(get), has_exchange);
  if (config.local_rank == 0) warn_of_what_is_not_taken(config);
  return config;
}

std::string this_host_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  char name_space[64] = {};
  const ssize_t size = ::readlink("/proc/self/ns/net", name_space, sizeof name_space);
  if (!std::getline(file, boot_id) || size <= 0) {
    throw std::invalid_argument("HORO_HOST_ID is not set, and this host's boot id cannot be read from /proc");
  }
  return boot_id + "/" + std::string(name_space, static_cast<std::size_t>(size));
}

}  // namespace horo
