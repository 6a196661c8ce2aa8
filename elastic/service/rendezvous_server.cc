// gRPC's threads call the service; one mutex guards the core. A thread of this file passes time to it. Orders leave on
// the stream of their host as soon as the one before has been written.
#include "elastic/service/rendezvous_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <system_error>
#include <thread>

#include "elastic/service/credentials.h"
#include "elastic/service/record_log.h"
#include "elastic/service/rendezvous_client.h"
#include "elastic/service/rendezvous_core.h"
#include "elastic/service/rpc.h"
#include "horo/base/error.h"
#include "horo/base/log.h"

namespace horo {
namespace {

namespace rpc = rendezvous::v1;

constexpr int kMostStreams = 64;            // of a connection
constexpr int kHandshakeMs = 5'000;         // until a connection is authenticated
constexpr int kMaxMetadata = 8 << 10;       // bytes of a call's headers
constexpr std::size_t kMemory = 512 << 20;  // bytes that gRPC may use
constexpr std::size_t kOrdersAtOnce = 64;
constexpr std::chrono::milliseconds kLastOrders{500};  // at the end: for hosts to take what is left

std::string order_text(const HostOrder& order) {
  const std::vector<std::byte> bytes = encode(AgentSays(order));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> request_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class Service final : public rpc::Rendezvous::CallbackService {
 public:
  Service(RecordStore& store, const JobAuthority& authority)
      : authority_(authority),
        core_(
            store, [this](std::uint32_t host) REQUIRES(mutex_) { write_orders(host); }, Clock::now()),
        timer_([this](const std::stop_token& stop) { pass_time(stop); }) {}

  ~Service() override {
    timer_.request_stop();
    changed_.notify_all();
  }

  // The reason why this process must end; empty: there is none.
  std::string fault() {
    MutexLock lock(mutex_);
    return fault_;
  }
  // Ends the streams, after their hosts have taken the orders that are left, or the limit has passed.
  void close(std::chrono::milliseconds limit) {
    MutexLock lock(mutex_);
    const TimePoint until = Clock::now() + limit;
    const auto is_free = [](const auto& one) { return one.second->is_free(); };
    while (!std::all_of(streams_.begin(), streams_.end(), is_free) && Clock::now() < until) {
      changed_.wait_until(mutex_, until);
    }
    for (const auto& [host, stream] : streams_) stream->close();
  }

  grpc::ServerUnaryReactor* Enroll(grpc::CallbackServerContext* context, const rpc::EnrollRequest* request,
                                   rpc::EnrollReply* reply) override {
    return answer(context, [&]() REQUIRES(mutex_) {
      core_.check_incarnation(request->host(), request->incarnation());
      reply->set_certificate(
          authority_.sign(request->certificate_request(), host_name_of(request->host(), request->incarnation())));
      reply->set_roots(authority_.roots_pem());
    });
  }

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context, const rpc::RegisterRequest* request,
                                     rpc::RegisterReply* reply) override {
    return answer(context, [&]() REQUIRES(mutex_) {
      const std::string name = host_name_of(request->host(), request->incarnation());
      if (caller(*context) != name) throw HostRefused("the certificate is not that of " + name);
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

  grpc::ServerUnaryReactor* Report(grpc::CallbackServerContext* context, const rpc::ReportRequest* request,
                                   rpc::ReportReply*) override {
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

  grpc::ServerUnaryReactor* Beat(grpc::CallbackServerContext* context, const rpc::BeatRequest* request,
                                 rpc::BeatReply*) override {
    return answer(context, [&]() REQUIRES(mutex_) {
      check_caller(*context, request->registration());
      core_.beat(request->registration(), Clock::now());
    });
  }

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const rpc::StatusRequest*,
                                   rpc::StatusReply* reply) override {
    return answer(context, [&]() REQUIRES(mutex_) {
      if (!caller(*context)) throw HostRefused("the certificate is not of this job's authority");
      reply->set_term(core_.term());
      if (const auto job = core_.job()) reply->set_job(order_text(HostOrder(*job)));
    });
  }

  grpc::ServerWriteReactor<rpc::Orders>* Watch(grpc::CallbackServerContext* context,
                                               const rpc::WatchRequest* request) override {
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

 private:
  // The stream of a host's orders. gRPC destroys it after OnDone().
  class OrderStream final : public grpc::ServerWriteReactor<rpc::Orders> {
   public:
    OrderStream(Service& service, std::uint64_t registration) : service_(service), registration_(registration) {}

    // The caller of these four holds the service's mutex.
    std::uint64_t registration() const { return registration_; }
    bool is_free() const { return !is_writing_ && !is_finished_; }
    void write(rpc::Orders orders) {
      orders_ = std::move(orders);
      is_writing_ = true;
      StartWrite(&orders_);
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
    void end_write() { is_writing_ = false; }

   private:
    Service& service_;
    const std::uint64_t registration_;
    rpc::Orders orders_;
    bool is_writing_ = false, is_finished_ = false;
  };

  // The name in the caller's certificate; nothing: it only has the token.
  std::optional<std::string> caller(const grpc::CallbackServerContext& context) const {
    const auto certificates = context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
    if (certificates.size() != 1) return std::nullopt;
    return authority_.issued(std::string(certificates.front().data(), certificates.front().size()));
  }

  void check_caller(const grpc::CallbackServerContext& context, std::uint64_t registration) const REQUIRES(mutex_) {
    const auto name = names_.find(core_.host_of(registration));
    if (name == names_.end() || caller(context) != name->second)
      throw HostRefused("the certificate is not that of the registered host");
  }

  template <class Call>
  grpc::Status status_of(const Call& call) REQUIRES(mutex_) {
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
      ::kill(::getpid(), SIGTERM);
      return {grpc::StatusCode::UNAVAILABLE, fault_};
    }
  }

  template <class Call>
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, const Call& call) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    MutexLock lock(mutex_);
    reactor->Finish(status_of(call));
    return reactor;
  }

  void write_orders(std::uint32_t host) REQUIRES(mutex_) {
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

  void on_written(OrderStream& stream, bool is_written) {
    MutexLock lock(mutex_);
    stream.end_write();
    changed_.notify_all();
    if (!is_written) return stream.refuse(grpc::Status::CANCELLED);
    for (const auto& [host, one] : streams_) {
      if (one == &stream) return write_orders(host);
    }
  }

  void on_stream_end(const OrderStream& stream) {
    MutexLock lock(mutex_);
    std::erase_if(streams_, [&](const auto& one) { return one.second == &stream; });
  }

  void pass_time(const std::stop_token& stop) {
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

  const JobAuthority& authority_;
  Mutex mutex_;
  CondVar changed_;
  RendezvousCore core_ GUARDED_BY(mutex_);
  std::map<std::uint32_t, std::string> names_ GUARDED_BY(mutex_);     // that are registered, by host
  std::map<std::uint32_t, OrderStream*> streams_ GUARDED_BY(mutex_);  // by host
  std::string fault_ GUARDED_BY(mutex_);
  std::jthread timer_;
};

// The job's authority, in a file of the folder so that a rendezvous that is started again goes on with it.
JobAuthority authority_in(const std::string& folder, const JobKey& token, const std::string& job) {
  const std::string path = folder + "/authority.pem";
  std::string pem(kMaxPemBytes, '\0');
  if (const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW); fd >= 0) {
    const ssize_t got = ::read(fd, pem.data(), pem.size());
    ::close(fd);
    if (got > 0) return JobAuthority::from_pem(pem.substr(0, static_cast<std::size_t>(got)), token, job);
  } else if (errno != ENOENT) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  JobAuthority made = JobAuthority::make(token, job);
  pem = made.to_pem();
  const std::string draft = path + ".new";
  const int fd = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  const bool is_written = fd >= 0 && ::write(fd, pem.data(), pem.size()) == static_cast<ssize_t>(pem.size()) &&
                          ::fsync(fd) == 0 && ::rename(draft.c_str(), path.c_str()) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  cleanse(pem);
  if (!is_written) throw std::system_error(error, std::generic_category(), path);
  return made;
}

std::unique_ptr<grpc::Server> listen(const std::string& address, const Credentials& own, Service& service) {
  grpc::SslServerCredentialsOptions tls(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  tls.pem_root_certs = own.roots_pem;
  tls.pem_key_cert_pairs.push_back({own.key_pem, own.certificate_pem});
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, grpc::SslServerCredentials(tls), &port);
  builder.RegisterService(&service);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxHostMessage) + (1 << 20));
  builder.SetMaxSendMessageSize(static_cast<int>(kMaxHostMessage) + (1 << 20));
  builder.SetResourceQuota(grpc::ResourceQuota("rendezvous").Resize(kMemory));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostStreams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadata);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    throw std::invalid_argument("the rendezvous cannot listen at " + address +
                                ": no interface of this host has that address, or another program listens there");
  }
  return server;
}

}  // namespace

int serve_rendezvous(const RendezvousOptions& options) {
  sigset_t ending;
  ::sigemptyset(&ending);
  for (const int signal : {SIGTERM, SIGINT}) ::sigaddset(&ending, signal);
  ::sigprocmask(SIG_BLOCK, &ending, nullptr);
  const std::unique_ptr<RecordStore> store = open_record_log(options.folder);
  const JobAuthority authority = authority_in(options.folder, options.token, options.job);
  Service service(*store, authority);
  Credentials own = authority.server();
  const std::unique_ptr<grpc::Server> server = listen(options.address, own, service);
  cleanse(own.key_pem);
  int signal = 0;
  while (::sigwait(&ending, &signal) != 0) {
  }
  service.close(kLastOrders);
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  if (const std::string fault = service.fault(); !fault.empty()) throw StoreLost(fault);
  return 0;
}

}  // namespace horo
