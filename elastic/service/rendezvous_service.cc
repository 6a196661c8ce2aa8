#include "elastic/service/rendezvous_service.h"

#include <malloc.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "elastic/service/rendezvous_client.h"
#include "horo/base/error.h"

namespace horo {
namespace {

namespace rpc = rendezvous::v1;

constexpr std::size_t kOrdersAtOnce = 64;
constexpr std::size_t kBytesAtOnce = 1 << 20;  // before the last order

// This process ends, and answers no call any more.
struct ServiceEnds : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::span<const std::byte> request_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

// The stream of a host's orders. gRPC destroys it after OnDone().
class RendezvousService::OrderStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit OrderStream(RendezvousService& service) : service_(service) {}

  // The caller of these holds the service's mutex.
  void begin(std::uint32_t host, std::uint64_t registration) {
    host_ = host;
    registration_ = registration;
  }
  std::uint32_t host() const { return host_; }
  std::uint64_t registration() const { return registration_; }
  bool is_free() const { return !is_writing_ && !is_finished_; }
  void write(const grpc::ByteBuffer& orders) {
    orders_ = orders;
    is_writing_ = true;
    StartWrite(&orders_);
  }
  void end_write() {
    is_writing_ = false;
    orders_.Clear();
  }
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
  std::uint32_t host_ = 0;
  std::uint64_t registration_ = 0;
  grpc::ByteBuffer orders_;
  bool is_writing_ = false, is_finished_ = false;
};

RendezvousService::RendezvousService(RecordStore& store, const JobAuthority& authority, RendezvousOwner owner,
                                     std::optional<std::uint32_t> home)
    : authority_(authority),
      owner_(std::move(owner)),
      core_(
          store, [this](std::uint32_t host) REQUIRES(mutex_) { write_orders(host); }, Clock::now(), home),
      timer_([this](const std::stop_token& stop) { pass_time(stop); }) {}

RendezvousService::~RendezvousService() {
  MutexLock lock(mutex_);
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
    written_.wait_until(mutex_, until);
  }
  for (const auto& [host, stream] : streams_) stream->close();
}

// ---- Calls. What is told is decoded before the lock is taken.

grpc::ServerUnaryReactor* RendezvousService::Enroll(grpc::CallbackServerContext* context,
                                                    const rpc::EnrollRequest* request, rpc::EnrollReply* reply) {
  return answer(context, [&] {
    {
      const std::optional<std::string> caller = owner_.caller(*context);
      MutexLock lock(mutex_);
      check_fault();
      check_evicted(caller);
      core_.check_incarnation(request->host(), request->incarnation());
      core_.expect_host(request->host(), request->incarnation(), Clock::now());
      wake_timer();
    }
    reply->set_certificate(
        authority_.sign(request->certificate_request(), host_name_of(request->host(), request->incarnation())));
    reply->set_roots(authority_.roots_pem());
  });
}

grpc::ServerUnaryReactor* RendezvousService::Report(grpc::CallbackServerContext* context,
                                                    const rpc::ReportRequest* request, rpc::ReportReply*) {
  return answer(context, [&] {
    const std::optional<std::string> caller = owner_.caller(*context);
    std::vector<HostEvent> events;
    for (const std::string& bytes : request->events()) {
      GuardSays says = decode_guard_says(request_bytes(bytes));
      if (!std::holds_alternative<HostEvent>(says)) throw ProtocolError("an event that is none");
      events.push_back(std::get<HostEvent>(std::move(says)));
    }
    MutexLock lock(mutex_);
    check_fault();
    host_of(request->registration(), caller);
    core_.report(request->registration(), events, Clock::now());
    wake_timer();
  });
}

grpc::ServerUnaryReactor* RendezvousService::Beat(grpc::CallbackServerContext* context, const rpc::BeatRequest* request,
                                                  rpc::BeatReply*) {
  return answer(context, [&] {
    const std::optional<std::string> caller = owner_.caller(*context);
    MutexLock lock(mutex_);
    check_fault();
    host_of(request->registration(), caller);
    core_.beat(request->registration(), Clock::now());
  });
}

grpc::ServerUnaryReactor* RendezvousService::Status(grpc::CallbackServerContext* context, const rpc::StatusRequest*,
                                                    rpc::StatusReply* reply) {
  return answer(context, [&] {
    const std::optional<std::string> caller = owner_.caller(*context);
    if (!caller) throw HostRefused("the certificate is not of this job's authority");
    std::optional<JobView> job;
    {
      MutexLock lock(mutex_);
      check_fault();
      check_evicted(caller);
      reply->set_term(core_.term());
      job = core_.job();
    }
    if (!job) return;
    const std::vector<std::byte> bytes = encode(*job);
    reply->set_job(bytes.data(), bytes.size());
  });
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* RendezvousService::Watch(grpc::CallbackServerContext* context,
                                                                     const grpc::ByteBuffer* request) {
  auto* stream = new OrderStream(*this);
  const grpc::Status status = status_of([&] { start(*stream, *context, *request); });
  if (!status.ok()) {
    MutexLock lock(mutex_);
    stream->refuse(status);
  }
  return stream;
}

void RendezvousService::start(OrderStream& stream, const grpc::CallbackServerContext& context,
                              const grpc::ByteBuffer& request) {
  grpc::ByteBuffer bytes = request;
  rpc::WatchRequest watch;
  if (!grpc::SerializationTraits<rpc::WatchRequest>::Deserialize(&bytes, &watch).ok())
    throw ProtocolError("a message that is malformed");
  const std::optional<std::string> caller = owner_.caller(context);
  MutexLock lock(mutex_);
  check_fault();
  const std::uint32_t host = host_of(watch.registration(), caller);
  stream.begin(host, watch.registration());
  if (const auto old = streams_.find(host); old != streams_.end()) old->second->close();
  streams_[host] = &stream;
  write_orders(host);
}

// ---- The answers.

void RendezvousService::check_fault() const {
  if (!fault_.empty()) throw ServiceEnds(fault_);
}

void RendezvousService::check_evicted(const std::optional<std::string>& caller) const {
  for (const auto& [host, why] : core_.evicted()) {
    if (caller == host_name_of(host, core_.incarnation_of(host))) throw HostEvicted(why);
  }
}

std::uint32_t RendezvousService::host_of(std::uint64_t registration, const std::optional<std::string>& caller) const {
  check_evicted(caller);
  const std::uint32_t host = core_.host_of(registration);
  const auto name = names_.find(host);
  if (name == names_.end() || caller != name->second)
    throw HostRefused("the certificate is not that of the registered host");
  return host;
}

grpc::Status RendezvousService::status_of(const std::function<void()>& call) {
  try {
    call();
    return grpc::Status::OK;
  } catch (const ProtocolError& error) {
    return {grpc::StatusCode::INVALID_ARGUMENT, error.what()};
  } catch (const HostEvicted& error) {
    return {grpc::StatusCode::PERMISSION_DENIED, error.what()};
  } catch (const HostRefused& error) {
    return {grpc::StatusCode::FAILED_PRECONDITION, error.what()};
  } catch (const NotRegistered& error) {
    return {grpc::StatusCode::ABORTED, error.what()};
  } catch (const ServiceEnds& error) {
    return {grpc::StatusCode::UNAVAILABLE, error.what()};
  } catch (const std::exception& error) {
    MutexLock lock(mutex_);
    if (fault_.empty()) fault_ = error.what();
    owner_.on_fault();
    return {grpc::StatusCode::UNAVAILABLE, fault_};
  }
}

template <class Call>
grpc::ServerUnaryReactor* RendezvousService::answer(grpc::CallbackServerContext* context, const Call& call) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status_of(call));
  return reactor;
}

// ---- Orders.

void RendezvousService::write_orders(std::uint32_t host) {
  const auto found = streams_.find(host);
  if (found == streams_.end() || !found->second->is_free()) return;
  OrderStream& stream = *found->second;
  EncodedOrders orders;
  try {
    while (orders.count() < kOrdersAtOnce && orders.bytes() < kBytesAtOnce) {
      const std::optional<HostOrder> order = core_.take_order(stream.registration());
      if (!order) break;
      encoder_.append(*order, orders);
    }
  } catch (const NotRegistered&) {
    return stream.close();
  } catch (const HostEvicted& error) {
    return stream.refuse({grpc::StatusCode::PERMISSION_DENIED, error.what()});
  }
  if (orders.count() > 0) stream.write(orders.buffer());
}

void RendezvousService::on_written(OrderStream& stream, bool is_written) {
  MutexLock lock(mutex_);
  stream.end_write();
  written_.notify_all();
  if (!is_written) return stream.refuse(grpc::Status::CANCELLED);
  const auto current = streams_.find(stream.host());
  if (current != streams_.end() && current->second == &stream) write_orders(stream.host());
}

void RendezvousService::on_stream_end(const OrderStream& stream) {
  MutexLock lock(mutex_);
  const auto current = streams_.find(stream.host());
  if (current != streams_.end() && current->second == &stream) streams_.erase(current);
  if (streams_.empty()) ::malloc_trim(0);  // a rendezvous serves many jobs, and keeps nothing of those that are over
  written_.notify_all();
}

// ---- Time.

void RendezvousService::wake_timer() {
  if (const auto next = core_.next_deadline(); next && *next < timer_until_) changed_.notify_all();
}

void RendezvousService::pass_time(const std::stop_token& stop) {
  bool goes_on = true;
  while (goes_on) {
    const grpc::Status status = status_of([&] {
      MutexLock lock(mutex_);
      check_fault();
      goes_on = !stop.stop_requested();
      if (goes_on) wait_or_pass_time();
    });
    if (!status.ok()) return;
  }
}

void RendezvousService::wait_or_pass_time() {
  const TimePoint now = Clock::now();
  const auto next = core_.next_deadline();
  if (next && *next <= now) return core_.pass_time(now);
  timer_until_ = std::min(next.value_or(TimePoint::max()), now + std::chrono::seconds(1));
  changed_.wait_until(mutex_, timer_until_);
}

}  // namespace horo
