#include "tools/horo/run/host_start.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "horo/base/error.h"
#include "horo/base/wire.h"

namespace horo::tools {
namespace {

constexpr std::string_view kMagic = "horo host 1\n";
constexpr std::size_t kMostBytes = 16 << 20;
constexpr std::size_t kTextHeader = 4;

void write_texts(const std::vector<std::string>& texts, ByteWriter& to) {
  to.u32(static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) to.text(text);
}

std::vector<std::string> read_texts(ByteReader& from) {
  std::vector<std::string> texts(from.count(kTextHeader));
  for (std::string& text : texts) text = from.text(kMostBytes);
  return texts;
}

void read_all(int fd, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = ::read(fd, into.data(), into.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw ProtocolError("the description of the job ends early");
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

[[noreturn]] void fail_call(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

// Where a sandbox refuses memory files: a file without a name, which the ranks can only read.
Descriptor make_nameless_file(const JobKey& key, const std::string& why) {
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    const Descriptor file(::open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0400));
    if (!file.is_open() || ::write(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size())) continue;
    Descriptor read(::open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDONLY | O_CLOEXEC));
    if (read.is_open()) return read;
  }
  throw std::invalid_argument("no place for the job key: memfd_create: " + why +
                              ", and neither /dev/shm nor /tmp takes " +
                              "a file; expected a sandbox that allows memfd_create, or a writable /tmp");
}

}  // namespace

std::vector<std::byte> encode(const HostStart& start) {
  ByteWriter body;
  body.raw(start.key);
  body.text(start.folder);
  write_texts(start.variables, body);
  write_texts(start.horo_run, body);
  body.u32(start.silence_ms);
  ByteWriter message;
  message.raw(std::as_bytes(std::span(kMagic)));
  message.u32(static_cast<std::uint32_t>(body.bytes().size()));
  message.raw(body.bytes());
  return message.take();
}

HostStart read_host_start(int fd) {
  std::array<std::byte, kMagic.size() + 4> head{};
  read_all(fd, head);
  if (!std::ranges::equal(std::span(head).first(kMagic.size()), std::as_bytes(std::span(kMagic)))) {
    throw ProtocolError("no description of a job: only horo run starts `horo host`");
  }
  const std::size_t size = ByteReader(std::span(head).subspan(kMagic.size())).u32();
  if (size > kMostBytes) throw ProtocolError("the description of the job is too long");
  std::vector<std::byte> bytes(size);
  read_all(fd, bytes);
  ByteReader from(bytes);
  HostStart start;
  std::ranges::copy(from.raw(start.key.size()), start.key.begin());
  start.folder = from.text(kMostBytes);
  start.variables = read_texts(from);
  start.horo_run = read_texts(from);
  start.silence_ms = from.u32();
  from.expect_end();
  return start;
}

Descriptor make_key_file(const JobKey& key) {
  Descriptor fd(::memfd_create("horo-key", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool is_refused = errno == ENOSYS || errno == EPERM || errno == EACCES;  // by a sandbox
  if (!fd.is_open() && is_refused) return make_nameless_file(key, std::strerror(errno));
  if (!fd.is_open()) fail_call("memfd_create");
  if (::write(fd.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size())) fail_call("write of the job key");
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
    fail_call("F_ADD_SEALS");
  return fd;
}

}  // namespace horo::tools
