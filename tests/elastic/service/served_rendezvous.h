// A `horo rendezvous` process for tests, and raw calls to it with any credentials.
#pragma once

#include "elastic/service/rpc.h"

// After rpc.h, whose headers come first.
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "elastic/host_messages.h"
#include "elastic/service/credentials.h"
#include "horo/base/auth.h"

namespace horo {

class ServedRendezvous {
 public:
  // Starts it, and waits until it listens.
  ServedRendezvous();
  ~ServedRendezvous();
  ServedRendezvous(const ServedRendezvous&) = delete;
  ServedRendezvous& operator=(const ServedRendezvous&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  bool is_running() const;
  std::size_t memory_kib() const;  // resident
  void restart();                  // with SIGKILL
  const JobKey& token() const { return token_; }
  static constexpr const char* kJob = "horo";

  // A connected TCP socket.
  int connect_raw() const;

 private:
  void start();

  std::filesystem::path folder_;
  JobKey token_{};
  int port_ = 0;
  pid_t pid_ = 0;
};

namespace rpc = rendezvous::v1;

// A client of its own connection. Null credentials: without TLS.
class RawClient {
 public:
  RawClient(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials);
  RawClient(const std::string& address, const Credentials& own);

  rpc::Rendezvous::Stub& stub() { return *stub_; }
  // The status of a call with a deadline. It fails at once if there is no connection.
  template <class Request, class Reply>
  grpc::Status call(grpc::Status (rpc::Rendezvous::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                    const Request& request, Reply& reply) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    return (stub_.get()->*method)(&context, request, &reply);
  }
  grpc::Status enroll(std::uint32_t host, std::uint64_t incarnation, const std::string& certificate_request,
                      rpc::EnrollReply& reply);
  grpc::Status register_host(const rpc::RegisterRequest& request, rpc::RegisterReply& reply);
  grpc::Status register_host(const std::vector<rpc::RegisterRequest>& parts, rpc::RegisterReply& reply);
  grpc::Status report(std::uint64_t registration, const std::string& event);
  grpc::Status beat(std::uint64_t registration);
  grpc::Status status();
  grpc::Status watch(std::uint64_t registration);  // of its first message or its end

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<rpc::Rendezvous::Stub> stub_;
};

// A host of a job of one rank on each of two hosts.
rpc::RegisterRequest register_request(std::uint32_t host, std::uint64_t incarnation,
                                      std::chrono::milliseconds silence_limit = std::chrono::seconds(10));
std::string text_of(const std::vector<std::byte>& bytes);
// A certificate that the rendezvous has signed for this host.
Credentials enrolled(const ServedRendezvous& rendezvous, std::uint32_t host, std::uint64_t incarnation);

}  // namespace horo
