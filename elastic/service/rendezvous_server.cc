#include "elastic/service/rendezvous_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <system_error>

#include "elastic/service/credentials.h"
#include "elastic/service/record_log.h"
#include "elastic/service/record_memory.h"
#include "elastic/service/rendezvous_service.h"
#include "elastic/service/rpc.h"

namespace horo {
namespace {

constexpr std::size_t kMemoryFiles = 3;
constexpr int kMostStreams = 64;                       // of a connection
constexpr int kHandshakeMs = 5'000;                    // until a connection is authenticated
constexpr int kMaxMetadata = 8 << 10;                  // bytes of a call's headers
constexpr std::size_t kMemory = 512 << 20;             // bytes that gRPC may use
constexpr std::chrono::milliseconds kLastOrders{500};  // at the end: for hosts to take what is left

// The name in the caller's certificate; nothing: it only has the token.
std::optional<std::string> caller_name(const JobAuthority& authority, const grpc::CallbackServerContext& context) {
  const auto certificates = context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (certificates.size() != 1) return std::nullopt;
  return authority.issued(std::string(certificates.front().data(), certificates.front().size()));
}

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

// The same in a file in memory, which has the authority or nothing.
JobAuthority authority_in(int fd, const JobKey& token, const std::string& job) {
  const std::unique_ptr<RecordStore> store = open_record_memory({fd});
  if (const StoredRecord stored = store->read(); stored.revision > 0) {
    std::string pem(reinterpret_cast<const char*>(stored.bytes.data()), stored.bytes.size());
    JobAuthority kept = JobAuthority::from_pem(pem, token, job);
    cleanse(pem);
    return kept;
  }
  JobAuthority made = JobAuthority::make(token, job);
  std::string pem = made.to_pem();
  store->write(0, std::as_bytes(std::span(pem)));
  cleanse(pem);
  return made;
}

// A connection of a stranger has a descriptor until the time of its handshake is over.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::unique_ptr<grpc::Server> listen(const std::string& address, const Credentials& own, RendezvousService& service) {
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
  raise_descriptor_limit();
  sigset_t ending;
  ::sigemptyset(&ending);
  for (const int signal : {SIGTERM, SIGINT}) ::sigaddset(&ending, signal);
  ::sigprocmask(SIG_BLOCK, &ending, nullptr);
  const bool is_in_memory = options.memory.size() == kMemoryFiles;
  const std::unique_ptr<RecordStore> store =
      is_in_memory ? open_record_memory({options.memory[1], options.memory[2]}) : open_record_log(options.folder);
  const JobAuthority authority = is_in_memory ? authority_in(options.memory[0], options.token, options.job)
                                              : authority_in(options.folder, options.token, options.job);
  const auto caller = [&](const grpc::CallbackServerContext& context) { return caller_name(authority, context); };
  RendezvousService service(*store, authority, {caller, [] { ::kill(::getpid(), SIGTERM); }}, options.home);
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
