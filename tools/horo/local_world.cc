// The key travels as an open memory file: command lines and environments are for everybody to read.
#include "tools/horo/local_world.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <string_view>
#include <system_error>

#include "horo/base/auth.h"

namespace horo {
namespace {

[[noreturn]] void fail(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

Fd make_key_file() {
  Fd fd(::memfd_create("horo-key", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_open()) fail("memfd_create");
  const JobKey key = make_job_key();
  if (::write(fd.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size())) fail("write of the job key");
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
    fail("F_ADD_SEALS");
  return fd;
}

// Two sockets with SO_REUSEADDR may be bound to one port as long as not both listen.
Fd reserve_port() {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) fail("socket");
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) fail("SO_REUSEADDR");
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) fail("bind to 127.0.0.1");
  return fd;
}

std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

}  // namespace

LocalWorld::LocalWorld(int size)
    : size_(size), key_(make_key_file()), port_(reserve_port()), address_(to_text(local_address(port_.get()))) {}

std::vector<std::string> LocalWorld::environment(int rank) const {
  std::map<std::string, std::string> variables = own_environment();
  variables.erase("HORO_KEY_FILE");
  variables["HORO_RANK"] = variables["HORO_LOCAL_RANK"] = std::to_string(rank);
  variables["HORO_SIZE"] = variables["HORO_LOCAL_SIZE"] = std::to_string(size_);
  variables["HORO_ADDR"] = address_;
  variables["HORO_KEY_FD"] = std::to_string(key_.get());
  variables.emplace("OMP_NUM_THREADS", std::to_string(std::max(1, usable_cores() / size_)));
  variables.emplace("PYTHONUNBUFFERED", "1");
  std::vector<std::string> texts;
  for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
  return texts;
}

int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof(cores), &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace horo
