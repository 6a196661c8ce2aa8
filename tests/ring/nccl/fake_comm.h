// The fake of NCCL: its communicators, and the exchange of bytes between their members.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ring/nccl/nccl_api.h"
#include "tests/ring/nccl/fake_orders.h"

namespace fake_nccl {
namespace {

constexpr int kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6,
              kInProgress = 7;
constexpr int kLookMs = 5;

int nccl_number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

void nap(long us) {
  const timespec time{0, 1'000 * us};
  ::ppoll(nullptr, 0, &time, nullptr);
}

// Bytes for one peer, and bytes from it, in this order.
struct Exchange {
  std::vector<std::byte> out;
  std::size_t expected = 0;
  std::vector<std::byte> in;
  bool is_done() const { return in.size() == expected; }
};

// What a member has given to its network and its peers have not got: a kernel ends before it is sent.
class Proxy {
 public:
  void add(int socket, const std::vector<std::byte>& bytes) {
    const std::lock_guard lock(mutex_);
    auto& queue = queues_[socket];
    queue.insert(queue.end(), bytes.begin(), bytes.end());
  }
  bool is_empty() {
    const std::lock_guard lock(mutex_);
    return std::ranges::all_of(queues_, [](const auto& one) { return one.second.empty(); });
  }
  void send_some() {
    const std::lock_guard lock(mutex_);
    for (auto& [socket, queue] : queues_) {
      if (queue.empty()) continue;
      const auto sent = ::send(socket, queue.data(), queue.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) queue.erase(queue.begin(), queue.begin() + sent);
    }
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<std::byte>> queues_;  // by socket
};

using Channel = std::pair<bool, int>;  // whether it is of sends and receives, and the peer

struct Comm {
  int size = 0, rank = 0, device = 0;
  std::string name;
  int listener = -1;
  std::vector<int> sockets;  // by rank; -1: this one, or not connected yet
  std::set<Channel> channels;
  std::atomic<int> state = kInProgress;
  std::atomic<bool> is_aborted = false, has_met = false;
  std::atomic<int> operations = 0;
  std::vector<std::jthread> threads;  // of calls in progress
  std::atomic<int> running = 0;       // operations on streams
  std::atomic<bool> is_finalized = false;
  Proxy proxy;
  std::jthread proxy_thread;
};

using CommPtr = std::shared_ptr<Comm>;
std::mutex comms_mutex;
std::map<void*, CommPtr> comms;
std::map<int, std::shared_ptr<std::mutex>> device_mutexes;  // of the kernels of a device
std::atomic<int> open_comms = 0;                            // that were not aborted
Orders orders;

CommPtr find(void* comm) {
  const std::lock_guard lock(comms_mutex);
  const auto found = comms.find(comm);
  return found == comms.end() ? nullptr : found->second;
}

std::mutex& kernels_of(int device) {
  const std::lock_guard lock(comms_mutex);
  auto& mutex = device_mutexes[device];
  if (!mutex) mutex = std::make_shared<std::mutex>();
  return *mutex;
}

sockaddr_un address_of(const Comm& comm, int rank, socklen_t& bytes) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = comm.name + "-" + std::to_string(rank);  // an abstract one
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

// The first bytes of a connection: of a meeting, or of one that stays.
struct Hello {
  int rank = -1;
  int stays = 0;
};

int connect_to(const Comm& comm, int rank, bool stays) {
  socklen_t bytes = 0;
  const sockaddr_un address = address_of(comm, rank, bytes);
  const Hello hello{comm.rank, stays ? 1 : 0};
  while (!comm.is_aborted) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), bytes) == 0) {
      if (::write(fd, &hello, sizeof(hello)) == sizeof(hello)) return fd;
    }
    ::close(fd);
    nap(1'000);
  }
  return -1;
}

// Accepts one connection, if there is one, and keeps it if it stays. Returns the number of those that do not.
int accept_some(Comm& comm) {
  pollfd waited{comm.listener, POLLIN, 0};
  if (::poll(&waited, 1, kLookMs) <= 0) return 0;
  const int fd = ::accept4(comm.listener, nullptr, nullptr, SOCK_CLOEXEC);
  Hello hello;
  if (fd < 0 || ::recv(fd, &hello, sizeof(hello), MSG_WAITALL) != sizeof(hello)) return 0;
  if (hello.stays == 0) return ::close(fd), 1;
  comm.sockets.at(static_cast<std::size_t>(hello.rank)) = fd;
  return 0;
}

// HORO_FAKE_NCCL_STUCK, HORO_FAKE_NCCL_ERROR
bool is_chosen(const char* variable, const Comm& comm, int operation) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || std::atoi(text) != operation) return false;
  const char* const member = std::strchr(text, '@');
  return member == nullptr || std::atoi(member + 1) == comm.rank;
}

bool listen_in(Comm& comm) {
  socklen_t bytes = 0;
  const sockaddr_un address = address_of(comm, comm.rank, bytes);
  comm.listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return ::bind(comm.listener, reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
         ::listen(comm.listener, 64) == 0;
}

void run_proxy(Comm& comm) {
  const bool is_slow = comm.rank == nccl_number_from("HORO_FAKE_NCCL_SLOW", -1);
  const long pause_us = is_slow ? 200'000 : 100;
  while (!comm.is_aborted) {
    comm.proxy.send_some();
    nap(pause_us);
  }
}

// Waits until all members are there.
void meet_all(Comm& comm) {
  while (is_chosen("HORO_FAKE_NCCL_STUCK", comm, -1) && !comm.is_aborted) nap(1'000);
  if (!listen_in(comm)) {
    comm.state = kSystemError;
    return;
  }
  for (int rank = 0; rank < comm.rank; ++rank) ::close(connect_to(comm, rank, false));
  for (int missing = comm.size - comm.rank - 1; missing > 0 && !comm.is_aborted;) missing -= accept_some(comm);
  comm.proxy_thread = std::jthread([&comm] { run_proxy(comm); });
  comm.has_met = true;
  comm.state = kSuccess;
}

// Connects to those of these peers that it has no channel to. False: it cannot.
bool connect_channels(Comm& comm, const std::set<Channel>& channels) {
  for (const Channel& channel : channels) {
    const int peer = channel.second;
    if (peer == comm.rank || !comm.channels.insert(channel).second) continue;
    if (comm.rank == nccl_number_from("HORO_FAKE_NCCL_UNCONNECTED", -1)) return false;
    int& socket = comm.sockets.at(static_cast<std::size_t>(peer));
    if (peer < comm.rank && socket < 0) socket = connect_to(comm, peer, true);
    while (peer > comm.rank && socket < 0 && !comm.is_aborted) accept_some(comm);
  }
  return !comm.is_aborted;
}

// The next bytes from a peer.
void receive_some(int socket, Exchange& exchange) {
  const std::size_t had = exchange.in.size();
  exchange.in.resize(exchange.expected);
  const auto got = ::recv(socket, exchange.in.data() + had, exchange.expected - had, MSG_DONTWAIT);
  exchange.in.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got == 0) nap(1'000);  // the peer is gone
}

// Waits for the peers as a kernel does: for ever, but for an abort.
bool run_exchange(Comm& comm, std::vector<Exchange>& exchanges) {
  for (std::size_t peer = 0; peer < exchanges.size(); ++peer) {
    if (!exchanges[peer].out.empty()) comm.proxy.add(comm.sockets[peer], exchanges[peer].out);
  }
  while (!comm.is_aborted) {
    if (std::ranges::all_of(exchanges, [](const Exchange& one) { return one.is_done(); })) return true;
    std::vector<pollfd> waited;
    for (std::size_t peer = 0; peer < exchanges.size(); ++peer) {
      waited.push_back({exchanges[peer].is_done() ? -1 : comm.sockets[peer], POLLIN, 0});
    }
    if (::poll(waited.data(), waited.size(), kLookMs) <= 0) continue;
    for (std::size_t peer = 0; peer < exchanges.size(); ++peer) {
      if (waited[peer].revents != 0) receive_some(comm.sockets[peer], exchanges[peer]);
    }
  }
  return false;
}

}  // namespace
}  // namespace fake_nccl
