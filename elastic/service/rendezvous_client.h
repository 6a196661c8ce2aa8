// RendezvousClient: the calls of a host's agent to the rendezvous. Each has a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "elastic/host_messages.h"
#include "elastic/service/credentials.h"
#include "elastic/service/rendezvous_core.h"

namespace horo {

// The rendezvous does not answer: the caller tries again.
struct RendezvousGone : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// All functions may be called from any thread and block up to their deadline. They throw RendezvousGone, NotRegistered,
// HostRefused or HostEvicted.
class RendezvousClient {
 public:
  // address: "host:port". Connects at the first call.
  RendezvousClient(const std::string& address, const Credentials& credentials);
  ~RendezvousClient();
  RendezvousClient(const RendezvousClient&) = delete;
  RendezvousClient& operator=(const RendezvousClient&) = delete;

  // The certificate of this start of `horo run`, with enrolment credentials.
  Credentials enroll(std::uint32_t host, std::uint64_t incarnation);
  Registration register_host(const HostHello& hello);
  void report(std::uint64_t registration, const std::vector<HostEvent>& events, std::chrono::milliseconds limit);
  void beat(std::uint64_t registration, std::chrono::milliseconds limit);
  // Calls on_order for each order, in this thread, until stop() was called or the stream ends. No deadline.
  void watch(std::uint64_t registration, const std::function<void(const HostOrder&)>& on_order);
  // Ends watch(), also one that begins later.
  void stop();

 private:
  struct Calls;
  std::unique_ptr<Calls> calls_;
};

// The name in the certificate of a start of `horo run`.
std::string host_name_of(std::uint32_t host, std::uint64_t incarnation);

}  // namespace horo
