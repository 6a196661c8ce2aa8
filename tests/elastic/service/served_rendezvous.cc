#include "tests/elastic/service/served_rendezvous.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpc/grpc.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>

namespace horo {
namespace {

using namespace std::chrono_literals;

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof(address);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no free port");
  }
  ::close(fd);
  return ntohs(address.sin_port);
}

grpc::ChannelArguments arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(kServerName);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20'000);  // also the limit of a connection with its handshake
  return arguments;
}

// gRPC's threads free a connection after its last owner has let it go. The test program waits for them before it ends,
// or the leak checker reports what they have not freed yet.
class EndOfGrpc : public testing::Environment {
 public:
  void SetUp() override { ::grpc_init(); }
  void TearDown() override { ::grpc_shutdown_blocking(); }
};
[[maybe_unused]] const testing::Environment* const kEndOfGrpc = testing::AddGlobalTestEnvironment(new EndOfGrpc());

}  // namespace

ServedRendezvous::ServedRendezvous() : token_(make_job_key()), port_(free_port()) {
  std::string made = std::filesystem::temp_directory_path() / "horo-served-XXXXXX";
  if (::mkdtemp(made.data()) == nullptr) throw std::runtime_error("no folder");
  folder_ = made;
  const int fd = ::open((folder_ / "key").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (::write(fd, token_.data(), token_.size()) != static_cast<ssize_t>(token_.size()))
    throw std::runtime_error("no key");
  ::close(fd);
  start();
}

ServedRendezvous::~ServedRendezvous() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  std::filesystem::remove_all(folder_);
}

void ServedRendezvous::start() {
  const std::string folder = folder_ / "record", key = folder_ / "key", at = address();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::execl(HORO_EXECUTABLE, HORO_EXECUTABLE, "rendezvous", "--addr", at.c_str(), "--key-file", key.c_str(), "--folder",
            folder.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  const Credentials own = enrolment_credentials(token_, kJob);
  const auto channel = grpc::CreateCustomChannel(
      at, grpc::SslCredentials({own.roots_pem, own.key_pem, own.certificate_pem}), arguments());
  if (!channel->WaitForConnected(std::chrono::system_clock::now() + 20s))
    throw std::runtime_error("the rendezvous does not listen");
}

void ServedRendezvous::restart() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  start();
}

bool ServedRendezvous::is_running() const {
  return ::kill(pid_, 0) == 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0;
}

std::size_t ServedRendezvous::memory_kib() const {
  std::ifstream in("/proc/" + std::to_string(pid_) + "/statm");
  std::size_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) / 1'024;
}

int ServedRendezvous::connect_raw() const {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in to = loopback(port_);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) return fd;
  ::close(fd);
  return -1;
}

RawClient::RawClient(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials)
    : channel_(grpc::CreateCustomChannel(address, credentials, arguments())),
      stub_(rpc::Rendezvous::NewStub(channel_)) {}

RawClient::RawClient(const std::string& address, const Credentials& own)
    : RawClient(address, grpc::SslCredentials({own.roots_pem, own.key_pem, own.certificate_pem})) {}

grpc::Status RawClient::enroll(std::uint32_t host, std::uint64_t incarnation, const std::string& certificate_request,
                               rpc::EnrollReply& reply) {
  rpc::EnrollRequest request;
  request.set_host(host);
  request.set_incarnation(incarnation);
  request.set_certificate_request(certificate_request);
  return call(&rpc::Rendezvous::Stub::Enroll, request, reply);
}

grpc::Status RawClient::register_host(const rpc::RegisterRequest& request, rpc::RegisterReply& reply) {
  return register_host(std::vector{request}, reply);
}

grpc::Status RawClient::register_host(const std::vector<rpc::RegisterRequest>& parts, rpc::RegisterReply& reply) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 60s);
  const auto stream = stub_->Register(&context, &reply);
  for (const rpc::RegisterRequest& part : parts) {
    if (!stream->Write(part)) break;
  }
  stream->WritesDone();
  return stream->Finish();
}

grpc::Status RawClient::report(std::uint64_t registration, const std::string& event) {
  rpc::ReportRequest request;
  request.set_registration(registration);
  request.add_events(event);
  rpc::ReportReply reply;
  return call(&rpc::Rendezvous::Stub::Report, request, reply);
}

grpc::Status RawClient::beat(std::uint64_t registration) {
  rpc::BeatRequest request;
  request.set_registration(registration);
  rpc::BeatReply reply;
  return call(&rpc::Rendezvous::Stub::Beat, request, reply);
}

grpc::Status RawClient::status() {
  rpc::StatusReply reply;
  return call(&rpc::Rendezvous::Stub::Status, rpc::StatusRequest(), reply);
}

grpc::Status RawClient::watch(std::uint64_t registration) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 60s);
  rpc::WatchRequest request;
  request.set_registration(registration);
  const auto stream = stub_->Watch(&context, request);
  rpc::Orders orders;
  if (stream->Read(&orders)) {
    context.TryCancel();
    stream->Finish();
    return grpc::Status::OK;
  }
  return stream->Finish();
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

rpc::RegisterRequest register_request(std::uint32_t host, std::uint64_t incarnation,
                                      std::chrono::milliseconds silence_limit) {
  JobSpec spec;
  spec.ranks_by_host = {1, 1};
  spec.silence_limit = silence_limit;
  rpc::RegisterRequest request;
  request.set_host(host);
  request.set_incarnation(incarnation);
  request.set_spec(text_of(encode(spec)));
  request.set_past(text_of(encode(GuardSays(HostPast{{{host, 0, {}}}, 0}))));
  return request;
}

Credentials enrolled(const ServedRendezvous& rendezvous, std::uint32_t host, std::uint64_t incarnation) {
  RawClient client(rendezvous.address(), enrolment_credentials(rendezvous.token(), ServedRendezvous::kJob));
  CertificateRequest own = make_request();
  rpc::EnrollReply reply;
  const grpc::Status status = client.enroll(host, incarnation, own.request_pem, reply);
  if (!status.ok()) throw std::runtime_error("enrolment: " + status.error_message());
  return {reply.roots(), reply.certificate(), std::move(own.key_pem)};
}

}  // namespace horo
