// Ranks of one host that a launcher started, without an address and a key.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>

#include "horo/base/error.h"
#include "ring/bootstrap/address.h"
#include "ring/bootstrap/full_mesh.h"
#include "ring/bootstrap/peer_info.h"
#include "ring/os/socket.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// A name of one test alone, so that tests can run in parallel.
std::string unique_job() {
  static std::atomic<int> count = 0;
  return "test " + std::to_string(::getpid()) + "." + std::to_string(++count);
}

Config launched(int rank, int size, const std::string& job) {
  Config config = config_of(rank, size, "");
  config.launcher.name = "mpirun";
  config.launcher.job = job;
  config.meet_by = MeetBy::kLocal;
  return config;
}

std::vector<std::string> start(const std::vector<Config>& configs,
                               const std::function<void(const Config&, Links&)>& body = {}) {
  std::vector<std::function<void()>> ranks;
  for (const Config& config : configs) {
    ranks.push_back([&config, &body] {
      Links links = find_others(config, 0);
      if (body) body(config, links);
    });
  }
  std::vector<std::string> thrown;
  for (const auto& error : run_threads(ranks)) thrown.push_back(message_of(error));
  return thrown;
}

std::vector<Config> launched_world(int size) {
  const std::string job = unique_job();
  std::vector<Config> configs;
  for (int rank = 0; rank < size; ++rank) configs.push_back(launched(rank, size, job));
  return configs;
}

TEST(Local, RanksOfOneHostConnectWithoutAnySetting) {
  const auto thrown = start(launched_world(4), [](const Config& config, Links& links) {
    for (int peer = 0; peer < 4; ++peer) {
      if (peer == config.rank) continue;
      std::byte out{42}, in{0};
      const std::vector<Transport::Op> ops{links.transport->post_send(peer, {}, {&out, 1}),
                                           links.transport->post_recv(peer, {}, {&in, 1})};
      links.transport->wait(ops, soon());
      EXPECT_EQ(in, out);
    }
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Local, EveryStartHasANewKeyThatAllRanksShare) {
  const auto keys_of_a_start = [] {
    const std::vector<Config> configs = launched_world(3);
    std::vector<JobKey> keys(3);
    std::vector<std::function<void()>> ranks;
    for (const Config& config : configs) {
      ranks.push_back([&config, &keys] {
        keys[static_cast<std::size_t>(config.rank)] = share_key(config, make_local_exchange(config, 0));
      });
    }
    for (const auto& error : run_threads(ranks)) EXPECT_EQ(message_of(error), "");
    EXPECT_THAT(keys, Each(keys[0]));
    return keys[0];
  };
  EXPECT_NE(keys_of_a_start(), keys_of_a_start());
}

TEST(Local, AKeyFromTheConfigIsKept) {
  std::vector<Config> configs = launched_world(2);
  for (Config& config : configs) config.key.emplace().fill(std::byte{9});
  EXPECT_EQ(share_key(configs[1], {}), *configs[1].key);
  EXPECT_THAT(start(configs), Each(""));
}

TEST(Local, JobsWithDifferentNamesDoNotConnectAndTheErrorSaysWhy) {
  std::vector<Config> configs = {launched(0, 2, unique_job()), launched(1, 2, unique_job())};
  for (Config& config : configs) config.start_timeout = milliseconds(300);
  EXPECT_THAT(start(configs), Each(AllOf(HasSubstr("did not connect within 300 ms (HORO_START_TIMEOUT_MS)"),
                                         HasSubstr("mpirun's job"), HasSubstr("HORO_ADDR"))));
}

TEST(Local, TwoJobsOfOneLauncherDoNotDisturbEachOther) {
  std::vector<Config> configs = launched_world(2);
  for (const Config& config : launched_world(2)) configs.push_back(config);
  EXPECT_THAT(start(configs), Each(""));
}

// Rank 1 connects after a process of the same user, which is no rank, has connected and sent garbage.
TEST(Local, AnUnauthenticatedPeerDoesNotDisturbTheStart) {
  const std::vector<Config> configs = launched_world(2);
  const std::vector<std::byte> garbage(1 << 16, std::byte{'G'});
  Fd intruder;
  const auto errors = run_threads({[&] { find_others(configs[0], 0); },
                                   [&] {
                                     const TimePoint until = soon();
                                     while (!intruder.is_open() && Clock::now() < until)
                                       intruder = dial(rendezvous_socket(configs[1]));
                                     iovec part = as_iovec(garbage);
                                     send_some(intruder.get(), {&part, 1});
                                     find_others(configs[1], 0);
                                   }});
  EXPECT_TRUE(intruder.is_open());
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
}

// Rank 1 sends its blob and ends; rank 2 connects after that, so rank 0 finds the end when it answers.
TEST(Local, ARankThatEndsDuringTheExchangeIsNamedByTheOthersAtOnce) {
  const std::vector<Config> configs = launched_world(3);
  const auto exchange_as = [&](int rank) { make_local_exchange(configs[static_cast<std::size_t>(rank)], 0)({}); };
  const TimePoint began = Clock::now();
  const auto errors = run_threads({[&] { exchange_as(0); },
                                   [&] {
                                     FullMesh mesh;
                                     mesh.self = identity_of(configs[1], 0);
                                     mesh.targets = {{0, Purpose::kExchange, {rendezvous_socket(configs[1])}}};
                                     mesh.hello_timeout = configs[1].hello_timeout;
                                     mesh.deadline = soon();
                                     {
                                       const auto connections = connect_mesh(mesh);
                                       const FrameBytes blob = encode(mesh.self.frame(FrameKind::kControl));
                                       iovec part = as_iovec(blob);
                                       send_some(connections.front().fd.get(), {&part, 1});
                                     }
                                     exchange_as(2);
                                   }});
  for (const auto& error : errors) {
    EXPECT_EQ(origin_of(error), 1);
    EXPECT_THAT(message_of(error), HasSubstr("rank 0: rank 1 broke off during the exchange of addresses"));
  }
  EXPECT_LT(Clock::now() - began, configs[0].start_timeout / 2);
}

TEST(Local, ASecondRankZeroReportsThatTheAddressIsInUse) {
  Config config = launched_world(2)[0];
  config.hello_timeout = milliseconds(50);
  const Fd first = listen_at(rendezvous_socket(config));
  EXPECT_THAT(start({config}), Each(AllOf(HasSubstr("Address already in use"), HasSubstr("HORO_JOB=another name"))));
}

TEST(Local, TheKernelReportsTheUserOfAUnixPeer) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd one(ends[0]), other(ends[1]);
  EXPECT_EQ(peer_user(one.get()), ::geteuid());
  const Fd tcp = listen_at(resolve("127.0.0.1:0", "test").front());
  EXPECT_EQ(peer_user(tcp.get()), std::nullopt);
}

// What each of three ranks throws if rank 1 sends this blob as its peer info.
std::vector<std::string> start_with_info_of_rank_1(const std::vector<std::byte>& info) {
  const std::string addr = free_address();
  std::vector<std::function<void()>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back([&addr, &info, rank] {
      const Config config = config_of(rank, 3, addr);
      const Exchange honest = make_tcp_exchange(config, 0);
      connect_tcp(config, 0, [&](std::span<const std::byte> mine) {
        return honest(rank == 1 ? std::span<const std::byte>(info) : mine);
      });
    });
  }
  std::vector<std::string> thrown;
  for (const auto& error : run_threads(ranks)) thrown.push_back(message_of(error));
  return thrown;
}

TEST(PeerInfo, AnotherVersionOfHoroIsNamedOnEveryRankWithBoth) {
  PeerInfo info = make_peer_info("127.0.0.1:1");
  const std::string ours = info.version;
  info.version = "9.9.9";
  auto bytes = encode(info);
  bytes.resize(bytes.size() + 7);  // the rest cannot be read by this version
  EXPECT_THAT(start_with_info_of_rank_1(bytes),
              Each("the version of horo must be equal on all ranks: it is " + ours +
                   " on rank 0, 9.9.9 on rank 1. Install the same version everywhere"));
}

TEST(PeerInfo, AnotherByteOrderIsRefused) {
  PeerInfo info = make_peer_info("127.0.0.1:1");
  info.byte_order = "middle";
  EXPECT_THAT(start_with_info_of_rank_1(encode(info)), Each(HasSubstr("it is little on rank 0, middle on rank 1")));
}

TEST(PeerInfo, AnUnreadableInfoIsRefused) {
  EXPECT_THAT(start_with_info_of_rank_1({}), Each(HasSubstr("one that gives no version on rank 1")));
  auto cut_off = encode(make_peer_info("127.0.0.1:1"));
  cut_off.pop_back();
  EXPECT_THAT(start_with_info_of_rank_1(cut_off), Each(HasSubstr("the peer info of rank 1 cannot be read")));
}

}  // namespace
}  // namespace horo::test
