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
#include "bench/peers/contest.h"
#include "horo/base/time.h"
#include "ring/os/waiting.h"

namespace horo::tools {
namespace {

constexpr std::chrono::minutes kAnswerTime{2};
constexpr int kLookAgainMs = 100;
constexpr std::chrono::seconds kEndTime{5};
constexpr int kEndLookMs = 20;
constexpr std::size_t kLastWordsBytes = 2000;

[[noreturn]] void fail_venue(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

// A line, or nothing yet. Throws std::runtime_error at the end.
bool read_line(int fd, std::string& heard, std::string& line) {
  char bytes[4096];
  while (heard.find('\n') == std::string::npos) {
    const ssize_t got = ::recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) throw std::runtime_error("ended");
    heard.append(bytes, static_cast<std::size_t>(got));
  }
  const std::size_t end = heard.find('\n');
  line = heard.substr(0, end);
  heard.erase(0, end + 1);
  return true;
}

bool is_running(const Child& child) {
  siginfo_t end{};
  return ::waitid(P_PID, static_cast<id_t>(child.pid), &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == 0;
}

void wait_to_read(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  ::poll(&wanted, 1, kLookAgainMs);
}

}  // namespace

Venue::Venue(std::string peers, ContestHosts hosts) : peers_(std::move(peers)), hosts_(std::move(hosts)) {
  std::error_code ignored;
  const bool has_memory = ::access("/dev/shm", W_OK) == 0;  // whose files no disk ever sees
  folder_ = (has_memory ? "/dev/shm" : std::filesystem::temp_directory_path(ignored).string()) + "/horo-bench-XXXXXX";
  if (::mkdtemp(folder_.data()) == nullptr) fail_venue(folder_);
  const std::string path = folder_ + "/referee";
  const sockaddr_un address = address_of(path);
  listener_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) fail_venue(path);
  if (::listen(listener_.get(), SOMAXCONN) != 0) fail_venue(path);
}

Venue::~Venue() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

World::World(Side side, int ranks, const Venue& venue)
    : side_(std::move(side)), ranks_(ranks), seats_(static_cast<std::size_t>(ranks)) {
  const std::string zeros(ContestBarrier::kLineBytes * static_cast<std::size_t>(ranks), '\0');
  std::ofstream(venue.folder() + "/" + name() + ".barrier", std::ios::binary) << zeros;
  if (side_.is_ours()) {
    start_ours(venue);
  } else if (side_.library == "gloo") {
    start_gloo(venue);
  } else {
    start_mpi(venue);
  }
}

World::~World() {
  seats_.clear();
  const TimePoint end = Clock::now() + kEndTime;
  while (Clock::now() < end && std::any_of(children_.begin(), children_.end(), is_running)) {
    listen_to_children();
    ::poll(nullptr, 0, kEndLookMs);
  }
}

void World::start_program(std::vector<std::string> arguments, const std::vector<std::string>& variables) {
  Program program;
  program.arguments = std::move(arguments);
  program.environment = variables;
  children_.push_back(start(program));
}

bool World::is_complete() const {
  return std::all_of(seats_.begin(), seats_.end(), [](const Seat& seat) { return seat.connection.is_open(); });
}

void World::sit_down(int rank, Descriptor connection, std::string version) {
  if (rank < 0 || rank >= ranks_) give_up("rank " + std::to_string(rank) + " came, of " + std::to_string(ranks_));
  seats_[static_cast<std::size_t>(rank)].connection = std::move(connection);
  version_ = std::move(version);
}

std::vector<std::string> World::ask(const std::string& line) {
  const std::string text = line + "\n";
  for (const Seat& seat : seats_) {
    const ssize_t sent = ::send(seat.connection.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(text.size())) give_up("a rank ended");
  }
  std::vector<std::string> answers;
  for (int rank = 0; rank < ranks_; ++rank) answers.push_back(hear(rank));
  return answers;
}

std::string World::hear(int rank) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  const TimePoint end = Clock::now() + kAnswerTime;
  std::string line;
  try {
    while (!read_line(seat.connection.get(), seat.heard, line)) {
      if (Clock::now() > end) give_up("rank " + std::to_string(rank) + " did not answer within two minutes");
      wait_to_read(seat.connection.get());
      listen_to_children();
    }
  } catch (const std::runtime_error& error) {
    if (std::string(error.what()) != "ended") throw;
    give_up("rank " + std::to_string(rank) + " ended");
  }
  return line;
}

void World::listen_to_children() {
  char bytes[4096];
  for (const Child& child : children_) {
    for (const int fd : {child.output.get(), child.errors.get()}) {
      for (ssize_t got = ::read(fd, bytes, sizeof(bytes)); got > 0; got = ::read(fd, bytes, sizeof(bytes))) {
        last_words_.append(bytes, static_cast<std::size_t>(got));
      }
    }
  }
  if (last_words_.size() > kLastWordsBytes) last_words_.erase(0, last_words_.size() - kLastWordsBytes);
}

void World::check() {
  listen_to_children();
  for (const Child& child : children_) {
    if (!is_running(child)) give_up("process " + std::to_string(child.pid) + " ended");
  }
}

void World::give_up(const std::string& why) {
  listen_to_children();
  const std::string said = last_words_.empty() ? "; it said nothing" : "; its last words:\n" + last_words_;
  throw std::runtime_error("bench --against: " + name() + " with " + std::to_string(ranks_) + " ranks: " + why + said);
}

void seat_all(const Venue& venue, std::vector<std::unique_ptr<World>>& worlds) {
  const TimePoint end = Clock::now() + kAnswerTime;
  const auto missing = [&] {
    return std::find_if(worlds.begin(), worlds.end(), [](const auto& world) { return !world->is_complete(); });
  };
  for (auto late = missing(); late != worlds.end(); late = missing()) {
    if (Clock::now() > end) throw std::runtime_error("bench --against: " + (*late)->name() + " did not start in time");
    for (const auto& world : worlds) world->check();
    wait_to_read(venue.listener());
    Descriptor connection(::accept4(venue.listener(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.is_open()) continue;
    std::string heard, line, word, name, version;
    while (!read_line(connection.get(), heard, line)) wait_to_read(connection.get());
    std::istringstream words(line);
    int rank = -1;
    words >> word >> name >> rank;
    std::getline(words >> std::ws, version);
    for (const auto& world : worlds) {
      if (world->name() == name) world->sit_down(rank, std::move(connection), version);
    }
  }
}

}  // namespace horo::tools
