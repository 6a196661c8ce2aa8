// RendezvousService: the calls of rendezvous.proto around RendezvousCore. Its owner has the server and its connections.
#pragma once

#include "elastic/service/rpc.h"

// After rpc.h, whose headers come first.
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "elastic/service/credentials.h"
#include "elastic/service/order_encoder.h"
#include "elastic/service/record_log.h"
#include "elastic/service/rendezvous_core.h"
#include "horo/base/time.h"

namespace horo {

struct RendezvousOwner {
  // The name in the caller's certificate; nothing: it only has the token. Any thread calls it.
  std::function<std::optional<std::string>(const grpc::CallbackServerContext&)> caller;
  // fault() has a reason now. Called with a lock held.
  std::function<void()> on_fault;
};

// Watch is raw: what many hosts are sent is encoded once.
using RendezvousCalls = rendezvous::v1::Rendezvous::WithCallbackMethod_Enroll<
    rendezvous::v1::Rendezvous::WithCallbackMethod_Register<rendezvous::v1::Rendezvous::WithRawCallbackMethod_Watch<
        rendezvous::v1::Rendezvous::WithCallbackMethod_Report<rendezvous::v1::Rendezvous::WithCallbackMethod_Beat<
            rendezvous::v1::Rendezvous::WithCallbackMethod_Status<rendezvous::v1::Rendezvous::Service>>>>>>;

// gRPC's threads call it; one mutex guards the core, and a thread of its own passes time to it. Orders leave on the
// stream of their host as soon as the one before has been written.
class RendezvousService final : public RendezvousCalls {
 public:
  // `store` and `authority` outlive this object. home: see RendezvousCore. Throws as RendezvousCore does.
  RendezvousService(RecordStore& store, const JobAuthority& authority, RendezvousOwner owner,
                    std::optional<std::uint32_t> home = std::nullopt);
  ~RendezvousService() override;

  // The reason why this process must end; empty: there is none.
  std::string fault();
  // Ends the streams, after their hosts have taken the orders that are left, or the limit has passed.
  void close(std::chrono::milliseconds limit);

  grpc::ServerUnaryReactor* Enroll(grpc::CallbackServerContext* context, const rendezvous::v1::EnrollRequest* request,
                                   rendezvous::v1::EnrollReply* reply) override;
  grpc::ServerReadReactor<rendezvous::v1::RegisterRequest>* Register(grpc::CallbackServerContext* context,
                                                                     rendezvous::v1::RegisterReply* reply) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Report(grpc::CallbackServerContext* context, const rendezvous::v1::ReportRequest* request,
                                   rendezvous::v1::ReportReply* reply) override;
  grpc::ServerUnaryReactor* Beat(grpc::CallbackServerContext* context, const rendezvous::v1::BeatRequest* request,
                                 rendezvous::v1::BeatReply* reply) override;
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const rendezvous::v1::StatusRequest* request,
                                   rendezvous::v1::StatusReply* reply) override;

 private:
  class OrderStream;
  class RegisterStream;

  // Throws HostEvicted if it is the name of an evicted host.
  void check_evicted(const std::optional<std::string>& caller) const REQUIRES(mutex_);
  // The host, if this is the name in its certificate.
  std::uint32_t host_of(std::uint64_t registration, const std::optional<std::string>& caller) const REQUIRES(mutex_);
  void check_fault() const REQUIRES(mutex_);
  void wake_timer() REQUIRES(mutex_);
  void start(OrderStream& stream, const grpc::CallbackServerContext& context, const grpc::ByteBuffer& request);
  Registration register_host(const RegisterStream& stream, const HostHello& hello, const std::string& caller);
  grpc::Status status_of(const std::function<void()>& call);
  template <class Call>
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, const Call& call);
  void write_orders(std::uint32_t host) REQUIRES(mutex_);
  void on_written(OrderStream& stream, bool is_written);
  void on_stream_end(const OrderStream& stream);
  void pass_time(const std::stop_token& stop);
  void wait_or_pass_time() REQUIRES(mutex_);

  const JobAuthority& authority_;
  const RendezvousOwner owner_;
  Mutex mutex_;
  CondVar changed_;  // for the timer
  CondVar written_;  // for close()
  TimePoint timer_until_ GUARDED_BY(mutex_) = TimePoint::max();
  OrderEncoder encoder_ GUARDED_BY(mutex_);
  RendezvousCore core_ GUARDED_BY(mutex_);
  std::map<std::uint32_t, std::string> names_ GUARDED_BY(mutex_);            // that are registered, by host
  std::map<std::uint32_t, OrderStream*> streams_ GUARDED_BY(mutex_);         // by host
  std::map<std::uint32_t, RegisterStream*> registering_ GUARDED_BY(mutex_);  // the last stream of each host
  std::string fault_ GUARDED_BY(mutex_);
  std::jthread timer_;
};

}  // namespace horo
