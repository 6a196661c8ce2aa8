#include "bench/against/worlds.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "bench/peers/barrier.h"
#include "bench/peers/harness.h"
#include "horo/base/time.h"
#include "ring/os/waiting.h"

namespace horo::bench {
namespace {

constexpr std::chrono::minutes kAnswerTime{2};
constexpr int kPollMs = 100;
constexpr std::chrono::seconds kEndTime{5};
constexpr int kEndPollMs = 20;
constexpr std::size_t kTailBytes = 2000;

[[noreturn]] void fail_environment(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

// Returns true and sets `line` once a whole line has arrived. Throws std::runtime_error("ended") at the end of the
// stream.
bool read_line(int fd, std::string& received, std::string& line) {
  char bytes[4096];
  while (received.find('\n') == std::string::npos) {
    const ssize_t got = ::recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) throw std::runtime_error("ended");
    received.append(bytes, static_cast<std::size_t>(got));
  }
  const std::size_t end = received.find('\n');
  line = received.substr(0, end);
  received.erase(0, end + 1);
  return true;
}

bool is_running(const tools::Child& child) {
  siginfo_t end{};
  return ::waitid(P_PID, static_cast<id_t>(child.pid), &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == 0;
}

void wait_to_read(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  ::poll(&wanted, 1, kPollMs);
}

}  // namespace

Environment::Environment(std::string drivers, HostList hosts) : drivers_(std::move(drivers)), hosts_(std::move(hosts)) {
  std::error_code ignored;
  const bool has_shm = ::access("/dev/shm", W_OK) == 0;  // its files are never written to a disk
  folder_ = (has_shm ? "/dev/shm" : std::filesystem::temp_directory_path(ignored).string()) + "/horo-bench-XXXXXX";
  if (::mkdtemp(folder_.data()) == nullptr) fail_environment(folder_);
  const std::string path = folder_ + "/coordinator";
  const sockaddr_un address = address_of(path);
  listener_ = tools::Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    fail_environment(path);
  if (::listen(listener_.get(), SOMAXCONN) != 0) fail_environment(path);
}

Environment::~Environment() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

World::World(Contestant contestant, int ranks, const Environment& environment)
    : contestant_(std::move(contestant)), ranks_(ranks), links_(static_cast<std::size_t>(ranks)) {
  const std::string zeros(RankBarrier::kLineBytes * static_cast<std::size_t>(ranks), '\0');
  std::ofstream(environment.folder() + "/" + name() + ".barrier", std::ios::binary) << zeros;
  if (contestant_.is_horo()) {
    start_horo(environment);
  } else if (contestant_.library == "gloo") {
    start_gloo(environment);
  } else {
    start_mpi(environment);
  }
}

World::~World() {
  links_.clear();
  const TimePoint end = Clock::now() + kEndTime;
  while (Clock::now() < end && std::any_of(children_.begin(), children_.end(), is_running)) {
    read_output();
    ::poll(nullptr, 0, kEndPollMs);
  }
}

void World::start_program(std::vector<std::string> arguments, const std::vector<std::string>& variables) {
  tools::Program program;
  program.arguments = std::move(arguments);
  program.environment = variables;
  children_.push_back(tools::start(program));
}

bool World::is_complete() const {
  return std::all_of(links_.begin(), links_.end(), [](const RankLink& link) { return link.connection.is_open(); });
}

void World::attach(int rank, tools::Descriptor connection, std::string version) {
  if (rank < 0 || rank >= ranks_) fail("rank " + std::to_string(rank) + " connected, of " + std::to_string(ranks_));
  links_[static_cast<std::size_t>(rank)].connection = std::move(connection);
  version_ = std::move(version);
}

std::vector<std::string> World::request(const std::string& line) {
  const std::string text = line + "\n";
  for (const RankLink& link : links_) {
    const ssize_t sent = ::send(link.connection.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(text.size())) fail("a rank ended");
  }
  std::vector<std::string> answers;
  for (int rank = 0; rank < ranks_; ++rank) answers.push_back(read_answer(rank));
  return answers;
}

std::string World::read_answer(int rank) {
  RankLink& link = links_[static_cast<std::size_t>(rank)];
  const TimePoint end = Clock::now() + kAnswerTime;
  std::string line;
  try {
    while (!read_line(link.connection.get(), link.received, line)) {
      if (Clock::now() > end) fail("rank " + std::to_string(rank) + " did not answer within two minutes");
      wait_to_read(link.connection.get());
      read_output();
    }
  } catch (const std::runtime_error& error) {
    if (std::string(error.what()) != "ended") throw;
    fail("rank " + std::to_string(rank) + " ended");
  }
  return line;
}

void World::read_output() {
  char bytes[4096];
  for (const tools::Child& child : children_) {
    for (const int fd : {child.output.get(), child.errors.get()}) {
      for (ssize_t got = ::read(fd, bytes, sizeof(bytes)); got > 0; got = ::read(fd, bytes, sizeof(bytes))) {
        tail_.append(bytes, static_cast<std::size_t>(got));
      }
    }
  }
  if (tail_.size() > kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
}

void World::check() {
  read_output();
  for (const tools::Child& child : children_) {
    if (!is_running(child)) fail("process " + std::to_string(child.pid) + " ended");
  }
}

void World::fail(const std::string& why) {
  read_output();
  const std::string output = tail_.empty() ? "; it printed nothing" : "; its last output:\n" + tail_;
  throw std::runtime_error(name() + " with " + std::to_string(ranks_) + " ranks: " + why + output);
}

void attach_all(const Environment& environment, std::vector<std::unique_ptr<World>>& worlds) {
  const TimePoint end = Clock::now() + kAnswerTime;
  const auto missing = [&] {
    return std::find_if(worlds.begin(), worlds.end(), [](const auto& world) { return !world->is_complete(); });
  };
  for (auto late = missing(); late != worlds.end(); late = missing()) {
    if (Clock::now() > end) throw std::runtime_error((*late)->name() + " did not start in time");
    for (const auto& world : worlds) world->check();
    wait_to_read(environment.listener());
    tools::Descriptor connection(::accept4(environment.listener(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.is_open()) continue;
    std::string received, line, word, name, version;
    while (!read_line(connection.get(), received, line)) wait_to_read(connection.get());
    std::istringstream words(line);
    int rank = -1;
    words >> word >> name >> rank;
    std::getline(words >> std::ws, version);
    for (const auto& world : worlds) {
      if (world->name() == name) world->attach(rank, std::move(connection), version);
    }
  }
}

}  // namespace horo::bench
