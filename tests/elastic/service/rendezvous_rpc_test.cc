// A rendezvous process among strangers: every call that a host of the job does not make is refused, and the hosts of
// the job are served all the time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/effort.h"
#include "tests/elastic/service/served_rendezvous.h"
#include "tests/elastic/service/tls.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using grpc::StatusCode;

constexpr std::size_t kMostGrowthKib = std::size_t{test::kSanitized ? 8 : 1} * (64 << 10);

class RendezvousRpc : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    of_all = new ServedRendezvous();
    // The job: two hosts.
    for (const std::uint32_t host : {0U, 1U}) {
      certificates[host] = enrolled(*of_all, host, 100 + host);
      registrations[host] = join(host);
      EXPECT_NE(registrations[host], 0U);
    }
    memory_before = of_all->memory_kib();
  }
  static void TearDownTestSuite() { delete of_all; }
  // The hosts of the job are served.
  void TearDown() override {
    ASSERT_TRUE(of_all->is_running());
    RecordProperty("resident_kib", std::to_string(of_all->memory_kib()));
    EXPECT_LT(of_all->memory_kib(), memory_before + kMostGrowthKib);
    for (const std::uint32_t host : {0U, 1U}) {
      RawClient client(of_all->address(), certificates[host]);
      EXPECT_TRUE(client.beat(registrations[host]).ok());
    }
    RawClient client(of_all->address(), certificates[0]);
    rpc::StatusReply reply;
    EXPECT_TRUE(client.call(&rpc::Rendezvous::Stub::Status, rpc::StatusRequest(), reply).ok());
    const JobView job = decode_job_view(std::as_bytes(std::span(reply.job())));
    for (const MemberView& member : job.members) EXPECT_FALSE(member.is_out);
  }

  static std::uint64_t join(std::uint32_t host) {
    RawClient client(of_all->address(), certificates[host]);
    rpc::RegisterReply reply;
    client.register_host(register_request(host, 100 + host), reply);
    return reply.registration();
  }

  // All calls of the service with these credentials, as host 0 would make them.
  static std::vector<std::pair<std::string, StatusCode>> all_calls(RawClient client) {
    rpc::EnrollReply certificate;
    rpc::RegisterReply registration;
    std::vector<std::pair<std::string, StatusCode>> found;
    found.emplace_back("Register", client.register_host(register_request(0, 100), registration).error_code());
    found.emplace_back("Beat", client.beat(registrations[0]).error_code());
    found.emplace_back("Report", client.report(registrations[0], death_of(0)).error_code());
    found.emplace_back("Watch", client.watch(registrations[0]).error_code());
    found.emplace_back("Status", client.status().error_code());
    return found;
  }
  static void expect_refused(RawClient client, StatusCode how) {
    for (const auto& [call, code] : all_calls(std::move(client))) EXPECT_EQ(code, how) << call;
  }
  static std::string death_of(MemberId id) {
    return text_of(encode(GuardSays(HostEvent(MemberEnded{id, false, "signal 9 (SIGKILL)"}))));
  }

  static inline ServedRendezvous* of_all = nullptr;
  static inline std::map<std::uint32_t, Credentials> certificates;
  static inline std::map<std::uint32_t, std::uint64_t> registrations;
  static inline std::size_t memory_before = 0;
};

// ---- Certificates: five calls each.

TEST_F(RendezvousRpc, WithoutTls) {
  expect_refused({of_all->address(), grpc::InsecureChannelCredentials()}, StatusCode::UNAVAILABLE);
}

TEST_F(RendezvousRpc, WithoutACertificate) {
  expect_refused({of_all->address(), grpc::SslCredentials({certificates[0].roots_pem, "", ""})},
                 StatusCode::UNAVAILABLE);
}

TEST_F(RendezvousRpc, WithTheCertificateOfAnotherAuthorityForThisHost) {
  const JobAuthority other = JobAuthority::make(of_all->token(), ServedRendezvous::kJob);
  CertificateRequest request = make_request();
  const std::string certificate = other.sign(request.request_pem, "host-0-64");
  expect_refused({of_all->address(), Credentials{certificates[0].roots_pem, certificate, request.key_pem}},
                 StatusCode::UNAVAILABLE);
}

TEST_F(RendezvousRpc, WithAnotherTokenOrJob) {
  JobKey token = of_all->token();
  token[31] ^= std::byte{1};
  for (Credentials own :
       {enrolment_credentials(token, ServedRendezvous::kJob), enrolment_credentials(of_all->token(), "another")}) {
    for (const bool trusts_server : {false, true}) {
      if (trusts_server) own.roots_pem = certificates[0].roots_pem;
      RawClient client(of_all->address(), own);
      rpc::EnrollReply reply;
      EXPECT_EQ(client.enroll(0, 100, make_request().request_pem, reply).error_code(), StatusCode::UNAVAILABLE);
    }
  }
}

TEST_F(RendezvousRpc, ACertificateOfTheTokenOnlyEnrols) {
  expect_refused({of_all->address(), enrolment_credentials(of_all->token(), ServedRendezvous::kJob)},
                 StatusCode::FAILED_PRECONDITION);
}

TEST_F(RendezvousRpc, AHostDoesNotSpeakForAnother) {
  RawClient client(of_all->address(), certificates[1]);
  rpc::RegisterReply reply;
  EXPECT_EQ(client.register_host(register_request(0, 100), reply).error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(client.register_host(register_request(0, 101), reply).error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(client.register_host(register_request(1, 100), reply).error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(client.beat(registrations[0]).error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(client.report(registrations[0], death_of(0)).error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(client.report(registrations[1], death_of(0)).error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(client.watch(registrations[0]).error_code(), StatusCode::FAILED_PRECONDITION);
}

TEST_F(RendezvousRpc, AnotherStartOfAHostIsRefusedAtItsEnrolment) {
  RawClient client(of_all->address(), enrolment_credentials(of_all->token(), ServedRendezvous::kJob));
  rpc::EnrollReply reply;
  EXPECT_EQ(client.enroll(0, 7, make_request().request_pem, reply).error_code(), StatusCode::FAILED_PRECONDITION);
}

TEST_F(RendezvousRpc, MalformedRequestsOfCertificates) {
  RawClient client(of_all->address(), enrolment_credentials(of_all->token(), ServedRendezvous::kJob));
  const std::string good = make_request().request_pem;
  for (const std::string& request : {std::string(), std::string("x"), good.substr(0, good.size() / 2),
                                     std::string(1 << 20, 'x'), good + good.substr(9), flawed_request(Flaw::kSignature),
                                     flawed_request(Flaw::kLargeCurve), flawed_request(Flaw::kRsaKey)}) {
    rpc::EnrollReply reply;
    const grpc::Status status = client.enroll(0, 100, request, reply);
    if (request == good + good.substr(9)) continue;  // of several texts the first one counts
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << request.substr(0, 40);
  }
}

// ---- Registrations.

TEST_F(RendezvousRpc, AnOldRegistrationAndItsReportsAreRefused) {
  const std::uint64_t old = registrations[0];
  registrations[0] = join(0);
  RawClient client(of_all->address(), certificates[0]);
  EXPECT_EQ(client.report(old, death_of(0)).error_code(), StatusCode::ABORTED);
  EXPECT_EQ(client.beat(old).error_code(), StatusCode::ABORTED);
  EXPECT_EQ(client.watch(old).error_code(), StatusCode::ABORTED);
  for (const std::uint64_t number : {std::uint64_t{0}, registrations[0] + 1, UINT64_MAX})
    EXPECT_EQ(client.report(number, death_of(0)).error_code(), StatusCode::ABORTED);
}

TEST_F(RendezvousRpc, AWatchEndsWhenItsRegistrationIsReplaced) {
  RawClient client(of_all->address(), certificates[0]);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 60s);
  rpc::WatchRequest request;
  request.set_registration(registrations[0]);
  const auto stream = client.stub().Watch(&context, request);
  rpc::Orders orders;
  registrations[0] = join(0);
  RawClient other(of_all->address(), certificates[0]);
  EXPECT_TRUE(other.watch(registrations[0]).ok());
  while (stream->Read(&orders)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::ABORTED);
}

TEST_F(RendezvousRpc, MalformedBytesAreRefused) {
  RawClient client(of_all->address(), certificates[0]);
  const rpc::RegisterRequest good = register_request(0, 100);
  const std::vector<std::string> bad = {
      "", "x", std::string(5, '\0'), std::string(1 << 20, '\x65'), good.spec() + "x", good.past().substr(0, 5)};
  for (const std::string& bytes : bad) {
    rpc::RegisterReply reply;
    rpc::RegisterRequest request = good;
    request.set_spec(bytes);
    EXPECT_EQ(client.register_host(request, reply).error_code(), StatusCode::INVALID_ARGUMENT);
    request = good;
    request.set_past(bytes);
    EXPECT_EQ(client.register_host(request, reply).error_code(), StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(client.report(registrations[0], bytes).error_code(), StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(client.report(registrations[0], good.past()).error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST_F(RendezvousRpc, AMessageOverTheLimitIsRefused) {
  RawClient client(of_all->address(), certificates[0]);
  const std::string large(kMaxHostMessage + (2 << 20), 'x');
  EXPECT_EQ(client.report(registrations[0], large).error_code(), StatusCode::RESOURCE_EXHAUSTED);
}

// ---- Bytes that are no TLS.

bool is_closed_within(int fd, std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  char bytes[256];
  while (std::chrono::steady_clock::now() < until) {
    pollfd poll_fd{fd, POLLIN, 0};
    if (::poll(&poll_fd, 1, 50) > 0 && ::recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) <= 0) return true;
  }
  return false;
}

TEST_F(RendezvousRpc, OtherProtocolsAreRefused) {
  std::string garbage(4'096, '\0');
  for (std::size_t i = 0; i < garbage.size(); ++i) garbage[i] = static_cast<char>(i * 131 + 7);
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), garbage}) {
    const int fd = of_all->connect_raw();
    ASSERT_GE(fd, 0);
    EXPECT_GT(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), 0);
    EXPECT_TRUE(is_closed_within(fd, 20s)) << text.substr(0, 10);
    ::close(fd);
  }
}

TEST_F(RendezvousRpc, ConnectionsThatSendNothingOrLittleHoldUpNobody) {
  std::vector<int> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(of_all->connect_raw());
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(::send(idle[i], "\x16", 1, MSG_NOSIGNAL), 1);  // of a TLS record
  const auto start = std::chrono::steady_clock::now();
  registrations[0] = join(0);
  EXPECT_NE(registrations[0], 0U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);  // 0.1 s where no other load is
  for (const int fd : idle) ::close(fd);
}

// ---- A restart.

TEST_F(RendezvousRpc, AHostGoesOnWithTheRendezvousThatIsStartedAgain) {
  of_all->restart();
  RawClient client(of_all->address(), certificates[0]);
  const std::uint64_t old = registrations[0];
  EXPECT_EQ(client.beat(old).error_code(), StatusCode::ABORTED);
  registrations[1] = join(1);
  EXPECT_EQ(client.beat(old).error_code(), StatusCode::ABORTED);
  registrations[0] = join(0);
  EXPECT_NE(registrations[0], old);
}

// ---- An evicted host: host 1 is silent.

class EvictedHostRpc : public testing::Test {
 protected:
  EvictedHostRpc() {
    for (const std::uint32_t host : {0U, 1U}) own_[host] = enrolled(served_, host, 100 + host);
    join(0);
    join(1);
  }

  grpc::Status join(std::uint32_t host) {
    RawClient client(served_.address(), own_[host]);
    rpc::RegisterReply reply;
    grpc::Status status = client.register_host(register_request(host, 100 + host, kSilence), reply);
    if (status.ok()) registration_[host] = reply.registration();
    return status;
  }
  // The rank of host 0 is frozen: it waits for those of host 1.
  void wait_for_host_1() {
    const GuardSays frozen(HostEvent(MemberSent{0, Frozen{}}));
    EXPECT_TRUE(RawClient(served_.address(), own_[0]).report(registration_[0], text_of(encode(frozen))).ok());
  }
  void beat_while(const std::function<bool()>& condition) {
    RawClient client(served_.address(), own_[0]);
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (condition() && std::chrono::steady_clock::now() < until) {
      EXPECT_TRUE(client.beat(registration_[0]).ok());
      ::poll(nullptr, 0, 50);
    }
  }
  void expect_refused() {
    RawClient host(served_.address(), own_[1]);
    RawClient newcomer(served_.address(), enrolment_credentials(served_.token(), ServedRendezvous::kJob));
    rpc::RegisterReply reply;
    rpc::EnrollReply certificate;
    const std::string request = make_request().request_pem;
    for (const grpc::Status& status :
         {host.register_host(register_request(1, 101, kSilence), reply), host.beat(registration_[1]),
          host.report(registration_[1], text_of(encode(GuardSays(HostEvent(MemberStopped{1}))))),
          host.watch(registration_[1]), host.status(), host.beat(registration_[0]),
          host.enroll(1, 7, request, certificate), newcomer.enroll(1, 101, request, certificate),
          newcomer.enroll(1, 7, request, certificate)}) {
      EXPECT_EQ(status.error_code(), StatusCode::PERMISSION_DENIED);
      EXPECT_EQ(status.error_message().find("host 1 was evicted: it did not answer for 1 s"), 0U);
    }
  }

  static constexpr std::chrono::milliseconds kSilence{1'000};
  ServedRendezvous served_;
  std::map<std::uint32_t, Credentials> own_;
  std::map<std::uint32_t, std::uint64_t> registration_;
};

TEST_F(EvictedHostRpc, ItsStreamEndsAndAllItsCallsAreRefusedAlsoByTheNextRendezvous) {
  RawClient watching(served_.address(), own_[1]);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 60s);
  rpc::WatchRequest request;
  request.set_registration(registration_[1]);
  const auto stream = watching.stub().Watch(&context, request);
  std::atomic<bool> has_ended = false;
  std::jthread reading([&] {
    for (rpc::Orders orders; stream->Read(&orders);) {
    }
    EXPECT_EQ(stream->Finish().error_code(), StatusCode::PERMISSION_DENIED);
    has_ended = true;
  });
  wait_for_host_1();
  beat_while([&] { return !has_ended; });
  reading.join();
  expect_refused();
  served_.restart();
  expect_refused();
  EXPECT_TRUE(join(0).ok());
}

// ---- A host that enrols and is lost before it registers.

TEST(ExpectedHostRpc, ThatDoesNotRegisterIsEvicted) {
  ServedRendezvous served;
  const Credentials own = enrolled(served, 0, 100);
  enrolled(served, 1, 101);
  RawClient client(served.address(), own);
  rpc::RegisterReply reply;
  ASSERT_TRUE(client.register_host(register_request(0, 100, 100ms), reply).ok());
  const GuardSays frozen(HostEvent(MemberSent{0, Frozen{}}));  // a rank waits for those of host 1
  EXPECT_TRUE(client.report(reply.registration(), text_of(encode(frozen))).ok());
  bool is_evicted = false;
  for (const auto until = std::chrono::steady_clock::now() + 60s;
       !is_evicted && std::chrono::steady_clock::now() < until;) {
    EXPECT_TRUE(client.beat(reply.registration()).ok());
    rpc::StatusReply status;
    EXPECT_TRUE(client.call(&rpc::Rendezvous::Stub::Status, rpc::StatusRequest(), status).ok());
    is_evicted = decode_job_view(std::as_bytes(std::span(status.job()))).members[1].is_evicted;
    ::poll(nullptr, 0, 20);
  }
  EXPECT_TRUE(is_evicted);
}

}  // namespace
}  // namespace horo
