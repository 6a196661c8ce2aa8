// Settings are read once, strictly: a whole string that is a number in its range, or an error that names the variable,
// what it held and what was expected. What is not set keeps its default.
#include "horo/base/config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string_view>

namespace horo {
namespace {

using Get = std::function<const char*(const char*)>;

constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr std::int64_t kMaxWaitMs = 7LL * 24 * 3600 * 1000;
constexpr std::int64_t kMaxBufferBytes = 1LL << 40;
constexpr std::size_t kMaxTextBytes = 255;

[[noreturn]] void refuse(const std::string& variable, const std::string& value, const std::string& expected) {
  throw std::invalid_argument(variable + "=\"" + value + "\": expected " + expected);
}

struct Range {
  std::int64_t low;
  std::int64_t high;
};

// Sets `field` if the variable is set.
template <class Number>
void read_number(const Get& get, const char* variable, Range range, Number& field) {
  const char* text = get(variable);
  if (text == nullptr) return;
  const char* end = text + std::strlen(text);
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(text, end, number);
  if (error != std::errc() || stop != end || number < range.low || number > range.high) {
    refuse(variable, text, "a whole number from " + std::to_string(range.low) + " to " + std::to_string(range.high));
  }
  field = static_cast<Number>(number);
}

void read_wait(const Get& get, const char* variable, std::chrono::milliseconds& field) {
  std::int64_t wait_ms = field.count();
  read_number(get, variable, {1, kMaxWaitMs}, wait_ms);
  field = std::chrono::milliseconds(wait_ms);
}

void read_text(const Get& get, const char* variable, std::string& field) {
  const char* text = get(variable);
  if (text == nullptr) return;
  field = text;
  if (field.empty() || field.size() > kMaxTextBytes) {
    refuse(variable, field.substr(0, kMaxTextBytes), "1 to " + std::to_string(kMaxTextBytes) + " bytes");
  }
}

std::string number_text(int number) {
  return std::to_string(number);
}

void read_ranks(const Get& get, Config& config) {
  const bool has_rank = get("HORO_RANK") != nullptr;
  const bool has_size = get("HORO_SIZE") != nullptr;
  if (has_rank != has_size) {
    throw std::invalid_argument(has_rank ? "HORO_RANK is set and HORO_SIZE is not: expected both or none"
                                         : "HORO_SIZE is set and HORO_RANK is not: expected both or none");
  }
  read_number(get, "HORO_MAX_RANKS", {1, 1 << 20}, config.max_ranks);
  read_number(get, "HORO_SIZE", {1, kMaxInt}, config.size);
  if (static_cast<std::size_t>(config.size) > config.max_ranks) {
    refuse("HORO_SIZE", number_text(config.size), "at most HORO_MAX_RANKS=" + std::to_string(config.max_ranks));
  }
  read_number(get, "HORO_RANK", {0, kMaxInt}, config.rank);
  if (config.rank >= config.size) {
    refuse("HORO_RANK", number_text(config.rank), "a rank below HORO_SIZE=" + number_text(config.size));
  }
}

void read_local_ranks(const Get& get, Config& config) {
  config.local_rank = config.rank;
  config.local_size = config.size;
  read_number(get, "HORO_LOCAL_SIZE", {1, kMaxInt}, config.local_size);
  if (config.local_size > config.size) {
    refuse("HORO_LOCAL_SIZE", number_text(config.local_size), "at most HORO_SIZE=" + number_text(config.size));
  }
  read_number(get, "HORO_LOCAL_RANK", {0, kMaxInt}, config.local_rank);
  if (config.local_rank >= config.local_size) {
    refuse("HORO_LOCAL_RANK", number_text(config.local_rank),
           "a rank below HORO_LOCAL_SIZE=" + number_text(config.local_size) + " (the default is HORO_RANK)");
  }
}

bool is_port(std::string_view text) {
  unsigned port = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && stop == text.data() + text.size() && port >= 1 && port <= 65'535;
}

void read_addr(const Get& get, Config& config) {
  read_text(get, "HORO_ADDR", config.addr);
  if (config.addr.empty() && config.size > 1) {
    throw std::invalid_argument("HORO_ADDR is not set: expected host:port where rank 0 listens, because HORO_SIZE=" +
                                number_text(config.size));
  }
  if (config.addr.empty()) return;
  const std::size_t colon = config.addr.rfind(':');
  if (colon == std::string::npos || colon == 0 || !is_port(std::string_view(config.addr).substr(colon + 1))) {
    refuse("HORO_ADDR", config.addr, "host:port with a port from 1 to 65535");
  }
}

// Reads at an offset and never moves the descriptor: a second session of this process reads the same key again.
JobKey key_from_descriptor(int fd, const std::string& variable, const std::string& value) {
  std::array<std::byte, kKeyBytes + 1> bytes{};
  ssize_t got = 0;
  do {
    got = ::pread(fd, bytes.data(), bytes.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0) refuse(variable, value, std::string("32 readable bytes, but reading failed: ") + std::strerror(errno));
  if (got != static_cast<ssize_t>(kKeyBytes)) {
    const std::string found = got > static_cast<ssize_t>(kKeyBytes) ? "more" : std::to_string(got);
    refuse(variable, value, "exactly 32 bytes, found " + found);
  }
  JobKey key{};
  std::copy_n(bytes.begin(), key.size(), key.begin());
  return key;
}

// A descriptor that closes itself.
class File {
 public:
  explicit File(const char* path) : fd_(::open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

JobKey key_from_file(const char* path) {
  const std::string variable = "HORO_KEY_FILE";
  const File file(path);
  if (file.fd() < 0) refuse(variable, path, std::string("a file with the job key, but: ") + std::strerror(errno));
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode)) refuse(variable, path, "a regular file");
  if ((status.st_mode & 07777) != 0600) refuse(variable, path, "a file of mode 0600: only its owner may read it");
  if (status.st_uid != ::geteuid()) refuse(variable, path, "a file that belongs to this user");
  return key_from_descriptor(file.fd(), variable, path);
}

void read_key(const Get& get, Config& config) {
  const char* descriptor = get("HORO_KEY_FD");
  const char* path = get("HORO_KEY_FILE");
  if (descriptor != nullptr && path != nullptr) {
    throw std::invalid_argument("HORO_KEY_FD and HORO_KEY_FILE are both set: expected one of them");
  }
  if (path != nullptr) config.key = key_from_file(path);
  if (descriptor == nullptr) return;
  int fd = -1;
  read_number(get, "HORO_KEY_FD", {0, kMaxInt}, fd);
  config.key = key_from_descriptor(fd, "HORO_KEY_FD", descriptor);
}

void read_limits(const Get& get, Config& config) {
  read_number(get, "HORO_BUCKET_BYTES", {0, kMaxBufferBytes}, config.bucket_bytes);
  read_number(get, "HORO_SEGMENT_BYTES", {64, kMaxBufferBytes}, config.segment_bytes);
  read_wait(get, "HORO_START_TIMEOUT_MS", config.start_timeout);
  read_wait(get, "HORO_HELLO_TIMEOUT_MS", config.hello_timeout);
  read_wait(get, "HORO_DEADLINE_MS", config.deadline);
  read_wait(get, "HORO_STALL_LIMIT_MS", config.stall_limit);
  read_number(get, "HORO_MAX_NAME_BYTES", {1, 1 << 16}, config.max_name_bytes);
  read_number(get, "HORO_MAX_DIMS", {1, 1 << 10}, config.max_dims);
  read_number(get, "HORO_MAX_TENSORS", {1, 1 << 28}, config.max_tensors);
  read_number(get, "HORO_MAX_MESSAGE_BYTES", {1 << 10, 1LL << 31}, config.max_message_bytes);
  read_number(get, "HORO_MAX_EARLY_BYTES", {0, kMaxBufferBytes}, config.max_early_bytes);
}

}  // namespace

Config config_from(const Get& get) {
  Config config;
  read_ranks(get, config);
  read_local_ranks(get, config);
  read_addr(get, config);
  read_text(get, "HORO_JOB", config.job);
  read_text(get, "HORO_HOST_ID", config.host_id);
  if (config.host_id.empty()) config.host_id = this_host_id();
  read_key(get, config);
  read_number(get, "HORO_INCARNATION", {0, std::numeric_limits<std::uint32_t>::max()}, config.incarnation);
  read_limits(get, config);
  return config;
}

Config config_from_environment() {
  return config_from([](const char* name) { return std::getenv(name); });
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
