// Hosts whose past is larger than a message, at a rendezvous process: as raw calls, and as their agent tells it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "elastic/packets.h"
#include "elastic/service/agent.h"
#include "horo/base/error.h"
#include "horo/base/time.h"
#include "tests/effort.h"
#include "tests/elastic/service/served_rendezvous.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using grpc::StatusCode;
using testing::HasSubstr;

constexpr std::uint32_t kRanks = 8;
constexpr std::uint64_t kIncarnation = 100;

JobSpec spec_of_one_host() {
  JobSpec spec;
  spec.ranks_by_host = {kRanks};
  spec.silence_limit = 60s;
  return spec;
}

// All ranks are frozen, with as many effects as each of them keeps.
HostPast large_past() {
  HostPast past;
  for (MemberId id = 0; id < kRanks; ++id) {
    Frozen frozen{0, {{0, 5}}, std::nullopt, "a link failed", 1};
    frozen.effects[1] = std::vector<std::byte>(kMaxEffectBytes, std::byte{7});
    past.members.push_back({id, 0, {MemberSent{id, Installed{0}}, MemberSent{id, std::move(frozen)}}});
  }
  return past;
}

std::vector<rpc::RegisterRequest> requests_of(const HostPast& past) {
  std::vector<rpc::RegisterRequest> requests;
  for (const std::vector<std::byte>& part : encode_parts(past)) requests.emplace_back().set_past(text_of(part));
  requests.front().set_host(0);
  requests.front().set_incarnation(kIncarnation);
  requests.front().set_spec(text_of(encode(spec_of_one_host())));
  return requests;
}

class HostPastRpc : public testing::Test {
 protected:
  HostPastRpc() : own_(enrolled(served_, 0, kIncarnation)) {}

  // Nothing: no job has begun.
  std::optional<JobView> job() {
    rpc::StatusReply reply;
    const grpc::Status status =
        RawClient(served_.address(), own_).call(&rpc::Rendezvous::Stub::Status, rpc::StatusRequest(), reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    if (reply.job().empty()) return std::nullopt;
    return decode_job_view(std::as_bytes(std::span(reply.job())));
  }
  grpc::Status registered(const std::vector<rpc::RegisterRequest>& requests) {
    rpc::RegisterReply reply;
    return RawClient(served_.address(), own_).register_host(requests, reply);
  }

  ServedRendezvous served_;
  const Credentials own_;
};

TEST_F(HostPastRpc, IsToldInPartsAndTakesEffectAsAWhole) {
  const std::vector<rpc::RegisterRequest> requests = requests_of(large_past());
  ASSERT_EQ(requests.size(), kRanks);
  const std::size_t before = served_.memory_kib();
  RawClient client(served_.address(), own_);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 60s);
  rpc::RegisterReply reply;
  const auto stream = client.stub().Register(&context, &reply);
  for (std::size_t part = 0; part + 1 < kRanks; ++part) ASSERT_TRUE(stream->Write(requests[part]));
  EXPECT_FALSE(job().has_value());
  ASSERT_TRUE(stream->Write(requests.back()));
  ASSERT_TRUE(stream->Finish().ok());
  EXPECT_EQ(job().value().epoch, 1U);  // all were frozen
  EXPECT_LT(served_.memory_kib(), before + (std::size_t{test::kSanitized ? 1'600U : 400U} << 10));
}

TEST_F(HostPastRpc, WithoutItsEndOrInAnotherOrderIsRefused) {
  std::vector<rpc::RegisterRequest> requests = requests_of(large_past());
  std::vector<rpc::RegisterRequest> cut(requests.begin(), requests.end() - 1);
  EXPECT_EQ(registered(cut).error_code(), StatusCode::INVALID_ARGUMENT);
  std::swap(requests[5], requests[6]);
  EXPECT_EQ(registered(requests).error_code(), StatusCode::INVALID_ARGUMENT);
  requests[1].set_past("x");
  EXPECT_EQ(registered(requests).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_FALSE(job().has_value());
}

TEST_F(HostPastRpc, OverTheLimitIsRefusedByName) {
  HostPast past = large_past();
  for (MemberPast& member : past.members) member.events.push_back(member.events.back());
  const grpc::Status status = registered(requests_of(past));
  EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("host 0 tells more than 72 MiB of its 8 ranks"));
  EXPECT_FALSE(job().has_value());
}

TEST_F(HostPastRpc, ALaterRegistrationEndsOneThatIsNotWhole) {
  const std::vector<rpc::RegisterRequest> requests = requests_of(large_past());
  RawClient client(served_.address(), own_);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 60s);
  rpc::RegisterReply reply;
  const auto stream = client.stub().Register(&context, &reply);
  ASSERT_TRUE(stream->Write(requests[0]));
  ASSERT_TRUE(stream->Write(requests[1]));
  ::poll(nullptr, 0, 200);  // for the service to read them: Write only queues
  HostPast small;
  for (MemberId id = 0; id < kRanks; ++id) small.members.push_back({id, 0, {}});
  EXPECT_TRUE(registered(requests_of(small)).ok());
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::ABORTED);
  EXPECT_EQ(job().value().epoch, 0U);
}

// ---- The agent. The test is the guard.

class GuardOfAgent {
 public:
  explicit GuardOfAgent(const ServedRendezvous& served) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    fd_ = ends[0];
    send(encode(spec_of_one_host()));
    AgentOptions options{ends[1], served.address(), 0, kIncarnation, served.token(), ServedRendezvous::kJob};
    agent_ = std::jthread([options] {
      EXPECT_EQ(run_agent(options), 0);
      ::close(options.guard_fd);
    });
  }
  ~GuardOfAgent() {
    ::shutdown(fd_, SHUT_RDWR);
    agent_.join();
    ::close(fd_);
  }

  // Answers until the agent passes a View on. The members that got it.
  std::vector<MemberId> await_view(const HostPast& past) {
    const TimePoint until = Clock::now() + 60s;
    while (Clock::now() < until) {
      const std::optional<AgentSays> says = receive();
      if (!says) continue;
      if (std::holds_alternative<TellPast>(*says)) {
        for (const std::vector<std::byte>& part : encode_parts(past)) send(part);
      }
      const auto* order = std::get_if<HostOrder>(&*says);
      const auto* sent = order != nullptr ? std::get_if<SendToMembers>(order) : nullptr;
      if (sent != nullptr && std::holds_alternative<View>(*sent->message)) return sent->ids;
      if (order != nullptr && std::holds_alternative<EndJob>(*order)) ADD_FAILURE() << std::get<EndJob>(*order).text;
    }
    return {};
  }

 private:
  void send(const std::vector<std::byte>& message) {
    for (const auto& packet : packets_of(message)) {
      EXPECT_EQ(::send(fd_, packet.data(), packet.size(), MSG_NOSIGNAL), static_cast<ssize_t>(packet.size()));
    }
  }
  std::optional<AgentSays> receive() {
    pollfd readable{fd_, POLLIN, 0};
    if (::poll(&readable, 1, 100) <= 0) return std::nullopt;
    const ssize_t got = ::recv(fd_, buffer_.data(), buffer_.size(), 0);
    if (got <= 0) return std::nullopt;
    const auto whole = joiner_.take(std::span(buffer_).first(static_cast<std::size_t>(got)));
    return whole ? std::optional(decode_agent_says(*whole)) : std::nullopt;
  }

  int fd_ = -1;
  PacketJoiner joiner_{kMaxHostMessage};
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kMaxPacket + 1);
  std::jthread agent_;
};

TEST(HostPastAgent, TellsALargePastToEachRendezvousThatIsStartedAgain) {
  ServedRendezvous served;
  GuardOfAgent guard(served);
  const HostPast past = large_past();
  const std::vector<MemberId> all{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(guard.await_view(past), all);
  served.restart();
  EXPECT_EQ(guard.await_view(past), all);
}

}  // namespace
}  // namespace horo
