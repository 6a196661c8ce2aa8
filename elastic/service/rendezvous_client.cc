#include "elastic/service/rendezvous_client.h"

#include <atomic>
#include <mutex>
#include <sstream>

#include "elastic/service/rpc.h"
#include "horo/base/error.h"

namespace horo {
namespace {

using std::chrono::milliseconds;
namespace rpc = rendezvous::v1;

constexpr milliseconds kCallLimit{5'000};
constexpr milliseconds kPartLimit{4'000};  // more for each further part of a past: 8 Mbit/s
constexpr milliseconds kConnectLimit{2'000};

std::string bytes_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> text_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

[[noreturn]] void fail(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::ABORTED:
      throw NotRegistered(status.error_message());
    case grpc::StatusCode::PERMISSION_DENIED:
      throw HostEvicted(status.error_message());
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::INVALID_ARGUMENT:
      throw HostRefused(status.error_message());
    default:
      throw RendezvousGone(status.error_message());
  }
}

// A channel of its own for each client: the library's shared ones keep the back-off of earlier failures.
grpc::ChannelArguments arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(kServerName);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMaxHostMessage) + (1 << 20));
  arguments.SetMaxSendMessageSize(static_cast<int>(kMaxHostMessage) + (1 << 20));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  // The limit of a connection with its handshake, too: thousands of strangers may be before it in the queue.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(kConnectLimit.count()));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

}  // namespace

struct RendezvousClient::Calls {
  Calls(const std::string& address, const Credentials& own)
      : channel(grpc::CreateCustomChannel(
            address, grpc::SslCredentials({own.roots_pem, own.key_pem, own.certificate_pem}), arguments())),
        stub(rpc::Rendezvous::NewStub(channel)) {}

  template <class Request, class Reply>
  Reply call(grpc::Status (rpc::Rendezvous::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
             const Request& request, milliseconds limit) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    Reply reply;
    const grpc::Status status = (stub.get()->*method)(&context, request, &reply);
    if (!status.ok()) fail(status);
    return reply;
  }

  // If there is no connection by then, the next call fails with the reason.
  void connect() { channel->WaitForConnected(std::chrono::system_clock::now() + kConnectLimit); }

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<rpc::Rendezvous::Stub> stub;
  Mutex mutex;
  grpc::ClientContext* watching GUARDED_BY(mutex) = nullptr;
  bool is_stopped GUARDED_BY(mutex) = false;
};

RendezvousClient::RendezvousClient(const std::string& address, const Credentials& credentials)
    : calls_(std::make_unique<Calls>(address, credentials)) {}

RendezvousClient::~RendezvousClient() = default;

Credentials RendezvousClient::enroll(std::uint32_t host, std::uint64_t incarnation) {
  calls_->connect();
  CertificateRequest own = make_request();
  rpc::EnrollRequest request;
  request.set_host(host);
  request.set_incarnation(incarnation);
  request.set_certificate_request(own.request_pem);
  const rpc::EnrollReply reply = calls_->call(&rpc::Rendezvous::Stub::Enroll, request, kCallLimit);
  return {reply.roots(), reply.certificate(), std::move(own.key_pem)};
}

Registration RendezvousClient::register_host(const HostHello& hello) {
  calls_->connect();
  const std::vector<std::vector<std::byte>> parts = encode_parts(hello.past);
  grpc::ClientContext context;
  const milliseconds limit = kCallLimit + kPartLimit * static_cast<int>(parts.size() - 1);
  context.set_deadline(std::chrono::system_clock::now() + limit);
  rpc::RegisterReply reply;
  const auto stream = calls_->stub->Register(&context, &reply);
  rpc::RegisterRequest request;
  request.set_host(hello.host);
  request.set_incarnation(hello.incarnation);
  request.set_spec(bytes_text(encode(hello.spec)));
  for (const std::vector<std::byte>& part : parts) {
    request.set_past(bytes_text(part));
    if (!stream->Write(request)) break;
    request.Clear();
  }
  stream->WritesDone();
  if (const grpc::Status status = stream->Finish(); !status.ok()) fail(status);
  return {reply.registration(), reply.term(), milliseconds(reply.lease_ms())};
}

void RendezvousClient::report(std::uint64_t registration, const std::vector<HostEvent>& events, milliseconds limit) {
  rpc::ReportRequest request;
  request.set_registration(registration);
  for (const HostEvent& event : events) request.add_events(bytes_text(encode(GuardSays(event))));
  calls_->call(&rpc::Rendezvous::Stub::Report, request, limit);
}

void RendezvousClient::beat(std::uint64_t registration, milliseconds limit) {
  rpc::BeatRequest request;
  request.set_registration(registration);
  calls_->call(&rpc::Rendezvous::Stub::Beat, request, limit);
}

void RendezvousClient::watch(std::uint64_t registration, const std::function<void(const HostOrder&)>& on_order) {
  grpc::ClientContext context;
  {
    MutexLock lock(calls_->mutex);
    if (calls_->is_stopped) return;
    calls_->watching = &context;
  }
  rpc::WatchRequest request;
  request.set_registration(registration);
  const auto stream = calls_->stub->Watch(&context, request);
  {
    MutexLock lock(calls_->mutex);
    if (calls_->is_stopped) context.TryCancel();  // stop() may have come before there was a call to cancel
  }
  std::string fault;
  for (rpc::Orders orders; stream->Read(&orders);) {
    try {
      for (const std::string& order : orders.orders()) {
        const AgentSays says = decode_agent_says(text_bytes(order));
        const auto* one = std::get_if<HostOrder>(&says);
        if (one == nullptr) throw ProtocolError("an order that is none");
        on_order(*one);
      }
    } catch (const ProtocolError& error) {
      fault = error.what();
      context.TryCancel();
    }
  }
  const grpc::Status status = stream->Finish();
  {
    MutexLock lock(calls_->mutex);
    calls_->watching = nullptr;
    if (calls_->is_stopped) return;
  }
  if (!fault.empty()) throw RendezvousGone("the rendezvous sends what this version does not know: " + fault);
  fail(status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream of orders ended") : status);
}

void RendezvousClient::stop() {
  MutexLock lock(calls_->mutex);
  calls_->is_stopped = true;
  if (calls_->watching != nullptr) calls_->watching->TryCancel();
}

std::string host_name_of(std::uint32_t host, std::uint64_t incarnation) {
  std::ostringstream name;
  name << "host-" << host << "-" << std::hex << incarnation;
  return name.str();
}

}  // namespace horo
