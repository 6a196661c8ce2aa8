// HostStart: what a host needs to start its ranks of a job, as it travels over the channel (ssh's stdin) of `horo
// host`. After it the channel carries single bytes: kGo once, the numbers of signals, and kAlive at times. Its end, or
// its silence, ends the host's ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/auth.h"
#include "tools/horo/machine/descriptor.h"

namespace horo::tools {

inline constexpr std::uint8_t kGo = 0xff;
inline constexpr std::uint8_t kAlive = 0;
inline constexpr double kAliveSeconds = 2;  // from one kAlive to the next
// Lines on a host's stdout that are for the launcher, as is an empty one. A rank's lines begin with its prefix.
inline constexpr std::string_view kReadyLine = "horo host: ready ";    // and the version
inline constexpr std::string_view kEndLine = "horo host: exit code ";  // and the code: the last line
inline constexpr std::string_view kConsequenceLine = "horo host: failed after a rank of another host";

struct HostStart {
  JobKey key{};
  std::string folder;                  // working directory
  std::vector<std::string> variables;  // "NAME=value"
  std::vector<std::string> horo_run;   // arguments of `horo run` on the host
  std::uint32_t silence_ms = 60'000;   // without a byte, after which the launcher counts as lost; at least 1
  bool operator==(const HostStart&) const = default;
};

std::vector<std::byte> encode(const HostStart& start);

// Blocks until the message has arrived. Throws ProtocolError if it is malformed or ends early.
HostStart read_host_start(int fd);

// A sealed memory file with the key, for processes that inherit it. Throws std::system_error.
Descriptor make_key_file(const JobKey& key);

}  // namespace horo::tools
