#include "elastic/service/rendezvous_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "elastic/service/rendezvous_client.h"
#include "horo/base/error.h"

namespace horo {
namespace {

namespace rpc = rendezvous::v1;

constexpr std::size_t kOrdersAtOnce = 64;

std::string order_text(const HostOrder& order) {
  const std::vector<std::byte> bytes = encode(AgentSays(order));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> request_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

// The stream of a host's orders. gRPC destroys it after OnDone().
class RendezvousService::OrderStream final : public grpc::ServerWriteReactor<rpc::Orders> {
 public:
  OrderStream(RendezvousService& service, std::uint64_t registration)
      : service_(service), registration_(registration) {}

  // The caller of these holds the service's mutex.
  std::uint64_t registration() const { return registration_; }
  bool is_free() const { return !is_writing_ && !is_finished_; }
  void write(rpc::Orders orders) {
    orders_ = std::move(orders);
    is_writing_ = true;
    StartWrite(&orders_);
  }
  void end_write() { is_writing_ = false; }
  void refuse(const grpc::Status& status) {
    if (!std::exchange(is_finished_, true)) Finish(status);
  }
  void close() { refuse({grpc::StatusCode::ABORTED, "the host has to register again"}); }

  void OnWriteDone(bool is_written) override { service_.on_written(*this, is_written); }
  void OnCancel() override {
    MutexLock lock(service_.mutex_);
    refuse(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    service_.on_stream_end(*this);
    delete this;
  }

 private:
  RendezvousService& service_;
  const std::uint64_t registration_;
  rpc::Orders orders_;
  bool is_writing_ = false, is_finished_ = false;
};

RendezvousService::RendezvousService(RecordStore& store, const JobAuthority& authority, RendezvousOwner owner)
    : authority_(authority),
      owner_(std::move(owner)),
      core_(
          store, [this](std::uint32_t host) REQUIRES(mutex_) { write_orders(host); }, Clock::now()),
      timer_([this](const std::stop_token& stop) { pass_time(stop); }) {}

RendezvousService::~RendezvousService() {
  timer_.request_stop();
  changed_.notify_all();
}

// ---- The owner.

std::string RendezvousService::fault() {
  MutexLock lock(mutex_);
  return fault_;
}
void RendezvousService::close(std::chrono::milliseconds limit) {
  MutexLock lock(mutex_);
  const TimePoint until = Clock::now() + limit;
  const auto is_free = [](const auto& one) { return one.second->is_free(); };
  while (!std::all_of(streams_.begin(), streams_.end(), is_free) && Clock::now() < until) {
    changed_.wait_until(mutex_, until);
  }
  for (const auto& [host, stream] : streams_) stream->close();
}

grpc::ServerUnaryReactor* RendezvousService::Enroll(grpc::CallbackServerContext* context,
                                                    const rpc::EnrollRequest* request, rpc::EnrollReply* reply) {
  return answer(context, [&]() REQUIRES(mutex_) {
    core_.check_incarnation(request->host(), request->incarnation());
    reply->set_certificate(
        authority_.sign(request->certificate_request(), host_name_of(request->host(), request->incarnation())));
    reply->set_roots(authority_.roots_pem());
  });
}

grpc::ServerUnaryReactor* RendezvousService::Register(grpc::CallbackServerContext* context,
                                                      const rpc::RegisterRequest* request, rpc::RegisterReply* reply) {
  return answer(context, [&]() REQUIRES(mutex_) {
    const std::string name = host_name_of(request->host(), request->incarnation());
    if (owner_.caller(*context) != name) throw HostRefused("the certificate is not that of " + name);
    HostHello hello{decode_job_spec(request_bytes(request->spec())), request->host(), request->incarnation(), {}};
    GuardSays past = decode_guard_says(request_bytes(request->past()));
    if (!std::holds_alternative<HostPast>(past)) throw ProtocolError("a host without a past");
    hello.past = std::get<HostPast>(std::move(past));
    const Registration registration = core_.register_host(hello, Clock::now());
    names_[request->host()] = name;
    reply->set_registration(registration.number);
    reply->set_term(registration.term);
    reply->set_lease_ms(static_cast<std::uint32_t>(registration.lease.count()));
  });
}

grpc::ServerUnaryReactor* RendezvousService::Report(grpc::CallbackServerContext* context,
                                                    const rpc::ReportRequest* request, rpc::ReportReply*) {
  return answer(context, [&]() REQUIRES(mutex_) {
    check_caller(*context, request->registration());
    std::vector<HostEvent> events;
    for (const std::string& bytes : request->events()) {
      GuardSays says = decode_guard_says(request_bytes(bytes));
      if (!std::holds_alternative<HostEvent>(says)) throw ProtocolError("an event that is none");
      events.push_back(std::get<HostEvent>(std::move(says)));
    }
    core_.report(request->registration(), events, Clock::now());
  });
}

grpc::ServerUnaryReactor* RendezvousService::Beat(grpc::CallbackServerContext* context, const rpc::BeatRequest* request,
                                                  rpc::BeatReply*) {
  return answer(context, [&]() REQUIRES(mutex_) {
    check_caller(*context, request->registration());
    core_.beat(request->registration(), Clock::now());
  });
}

grpc::ServerUnaryReactor* RendezvousService::Status(grpc::CallbackServerContext* context, const rpc::StatusRequest*,
                                                    rpc::StatusReply* reply) {
  return answer(context, [&]() REQUIRES(mutex_) {
    if (!owner_.caller(*context)) throw HostRefused("the certificate is not of this job's authority");
    reply->set_term(core_.term());
    if (const auto job = core_.job()) reply->set_job(order_text(HostOrder(*job)));
  });
}

grpc::ServerWriteReactor<rpc::Orders>* RendezvousService::Watch(grpc::CallbackServerContext* context,
                                                                const rpc::WatchRequest* request) {
  auto* stream = new OrderStream(*this, request->registration());
  MutexLock lock(mutex_);
  const grpc::Status status = status_of([&]() REQUIRES(mutex_) {
    check_caller(*context, request->registration());
    const std::uint32_t host = core_.host_of(request->registration());
    if (const auto old = streams_.find(host); old != streams_.end()) old->second->close();
    streams_[host] = stream;
    write_orders(host);
  });
  if (!status.ok()) stream->refuse(status);
  return stream;
}

void RendezvousService::check_caller(const grpc::CallbackServerContext& context, std::uint64_t registration) const {
  const auto name = names_.find(core_.host_of(registration));
  if (name == names_.end() || owner_.caller(context) != name->second)
    throw HostRefused("the certificate is not that of the registered host");
}

template <class Call>
grpc::Status RendezvousService::status_of(const Call& call) {
  try {
    if (!fault_.empty()) return {grpc::StatusCode::UNAVAILABLE, fault_};
    call();
    changed_.notify_all();
    return grpc::Status::OK;
  } catch (const ProtocolError& error) {
    return {grpc::StatusCode::INVALID_ARGUMENT, error.what()};
  } catch (const HostRefused& error) {
    return {grpc::StatusCode::FAILED_PRECONDITION, error.what()};
  } catch (const NotRegistered& error) {
    return {grpc::StatusCode::ABORTED, error.what()};
  } catch (const std::exception& error) {
    fault_ = error.what();
    owner_.on_fault();
    return {grpc::StatusCode::UNAVAILABLE, fault_};
  }
}

template <class Call>
grpc::ServerUnaryReactor* RendezvousService::answer(grpc::CallbackServerContext* context, const Call& call) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  MutexLock lock(mutex_);
  reactor->Finish(status_of(call));
  return reactor;
}

void RendezvousService::write_orders(std::uint32_t host) {
  const auto found = streams_.find(host);
  if (found == streams_.end() || !found->second->is_free()) return;
  OrderStream& stream = *found->second;
  rpc::Orders orders;
  try {
    for (std::size_t bytes = 0; orders.orders_size() < static_cast<int>(kOrdersAtOnce) && bytes < (1 << 20);) {
      const std::optional<HostOrder> order = core_.take_order(stream.registration());
      if (!order) break;
      orders.add_orders(order_text(*order));
      bytes += orders.orders(orders.orders_size() - 1).size();
    }
  } catch (const NotRegistered&) {
    return stream.close();
  }
  if (orders.orders_size() > 0) stream.write(std::move(orders));
}

void RendezvousService::on_written(OrderStream& stream, bool is_written) {
  MutexLock lock(mutex_);
  stream.end_write();
  changed_.notify_all();
  if (!is_written) return stream.refuse(grpc::Status::CANCELLED);
  for (const auto& [host, one] : streams_) {
    if (one == &stream) return write_orders(host);
  }
}

void RendezvousService::on_stream_end(const OrderStream& stream) {
  MutexLock lock(mutex_);
  std::erase_if(streams_, [&](const auto& one) { return one.second == &stream; });
}

void RendezvousService::pass_time(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  while (!stop.stop_requested()) {
    const auto next = core_.next_deadline();
    if (next && *next <= Clock::now()) {
      if (const grpc::Status status = status_of([&]() REQUIRES(mutex_) { core_.pass_time(Clock::now()); });
          !status.ok()) {
        return;
      }
      continue;
    }
    changed_.wait_until(mutex_, std::min(next.value_or(TimePoint::max()), Clock::now() + std::chrono::seconds(1)));
  }
}

}  // namespace horo
