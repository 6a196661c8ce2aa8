// Registrations. The past of a host comes in parts and takes effect as a whole: its events, told one after the other,
// would lead to decisions that the whole does not.
#include <utility>

#include "elastic/service/rendezvous_client.h"
#include "elastic/service/rendezvous_service.h"
#include "horo/base/error.h"

namespace horo {
namespace {

std::span<const std::byte> part_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

// A call of Register. gRPC destroys it after OnDone().
class RendezvousService::RegisterStream final : public grpc::ServerReadReactor<rendezvous::v1::RegisterRequest> {
 public:
  RegisterStream(RendezvousService& service, const grpc::CallbackServerContext& context,
                 rendezvous::v1::RegisterReply& reply)
      : service_(service), context_(context), reply_(reply) {
    StartRead(&request_);
  }

  // The caller holds the service's mutex.
  void refuse(const grpc::Status& status) {
    if (!std::exchange(is_finished_, true)) Finish(status);
  }

  void OnReadDone(bool is_read) override {
    bool is_registered = false;
    const grpc::Status status = service_.status_of([&] {
      if (!is_read) throw ProtocolError("a registration without the end of its past");
      if (!hello_) begin();
      is_registered = take_part();
    });
    MutexLock lock(service_.mutex_);
    if (!status.ok() || is_registered) return refuse(status);
    if (!is_finished_) StartRead(&request_);
  }
  void OnDone() override {
    {
      MutexLock lock(service_.mutex_);
      const auto current = hello_ ? service_.registering_.find(hello_->host) : service_.registering_.end();
      if (current != service_.registering_.end() && current->second == this) service_.registering_.erase(current);
    }
    delete this;
  }

 private:
  void begin() {
    const std::string name = host_name_of(request_.host(), request_.incarnation());
    if (service_.owner_.caller(context_) != name) throw HostRefused("the certificate is not that of " + name);
    HostHello hello{decode_job_spec(part_bytes(request_.spec())), request_.host(), request_.incarnation(), {}};
    if (hello.host >= hello.spec.ranks_by_host.size())
      throw HostRefused("the job does not have host " + std::to_string(hello.host));
    name_ = name;
    hello_ = std::move(hello);
    MutexLock lock(service_.mutex_);
    RegisterStream*& current = service_.registering_[hello_->host];
    if (current != nullptr) current->refuse({grpc::StatusCode::ABORTED, "the host registers anew"});
    current = this;
  }

  // Whether the host is registered now.
  bool take_part() {
    const std::size_t ranks = hello_->spec.ranks_by_host[hello_->host];
    bytes_ += request_.past().size();
    if (bytes_ > ranks * kMaxPastOfMember) {
      throw HostRefused("host " + std::to_string(hello_->host) + " tells more than " +
                        std::to_string((ranks * kMaxPastOfMember) >> 20) + " MiB of its " + std::to_string(ranks) +
                        " ranks");
    }
    GuardSays says = decode_guard_says(part_bytes(request_.past()));
    if (!std::holds_alternative<HostPast>(says)) throw ProtocolError("a host without a past");
    append(std::get<HostPast>(std::move(says)), hello_->past);
    request_.Clear();
    if (!hello_->past.is_last) return false;
    const Registration registration = service_.register_host(*this, *hello_, name_);
    reply_.set_registration(registration.number);
    reply_.set_term(registration.term);
    reply_.set_lease_ms(static_cast<std::uint32_t>(registration.lease.count()));
    return true;
  }

  RendezvousService& service_;
  const grpc::CallbackServerContext& context_;
  rendezvous::v1::RegisterReply& reply_;
  rendezvous::v1::RegisterRequest request_;
  std::optional<HostHello> hello_;  // with the parts that have come
  std::string name_;                // of its certificate
  std::size_t bytes_ = 0;
  bool is_finished_ = false;
};

grpc::ServerReadReactor<rendezvous::v1::RegisterRequest>* RendezvousService::Register(
    grpc::CallbackServerContext* context, rendezvous::v1::RegisterReply* reply) {
  return new RegisterStream(*this, *context, *reply);
}

Registration RendezvousService::register_host(const RegisterStream& stream, const HostHello& hello,
                                              const std::string& caller) {
  MutexLock lock(mutex_);
  const auto current = registering_.find(hello.host);
  if (current == registering_.end() || current->second != &stream) throw NotRegistered("the host registers anew");
  check_fault();
  check_evicted(caller);
  const Registration registration = core_.register_host(hello, Clock::now());
  names_[hello.host] = caller;
  wake_timer();
  return registration;
}

}  // namespace horo
