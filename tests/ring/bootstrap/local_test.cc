// Ranks of one host that a launcher started: they have no address and no key, and need none.

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

// Of one test alone, so that tests can run at one time.
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

TEST(Local, RanksOfOneHostMeetWithoutAnySetting) {
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

TEST(Local, EveryStartGetsANewKeyAndAllRanksTheSame) {
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

TEST(Local, AKeyOfTheUsersOwnIsKept) {
  std::vector<Config> configs = launched_world(2);
  for (Config& config : configs) config.key.emplace().fill(std::byte{9});
  EXPECT_EQ(share_key(configs[1], {}), *configs[1].key);
  EXPECT_THAT(start(configs), Each(""));
}

TEST(Local, JobsWithOtherNamesNeverMeetAndAreToldWhy) {
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

// Rank 1 comes when somebody of this user, who is no rank, has connected and said his word.
TEST(Local, AStrangerAtTheSocketDisturbsNobody) {
  const std::vector<Config> configs = launched_world(2);
  const std::vector<std::byte> garbage(1 << 16, std::byte{'G'});
  Fd stranger;
  const auto errors = run_threads({[&] { find_others(configs[0], 0); },
                                   [&] {
                                     const TimePoint until = soon();
                                     while (!stranger.is_open() && Clock::now() < until)
                                       stranger = dial(meeting_socket(configs[1]));
                                     iovec part = as_iovec(garbage);
                                     send_some(stranger.get(), {&part, 1});
                                     find_others(configs[1], 0);
                                   }});
  EXPECT_TRUE(stranger.is_open());
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
}

// Rank 1 gives its blob and ends; rank 2 comes after that, so that rank 0 finds out when it answers.
TEST(Local, ARankThatEndsInTheMiddleOfTheExchangeIsNamedByTheOthersAtOnce) {
  const std::vector<Config> configs = launched_world(3);
  const auto exchange_as = [&](int rank) { make_local_exchange(configs[static_cast<std::size_t>(rank)], 0)({}); };
  const TimePoint began = Clock::now();
  const auto errors = run_threads({[&] { exchange_as(0); },
                                   [&] {
                                     FullMesh meeting;
                                     meeting.self = identity_of(configs[1], 0);
                                     meeting.callees = {{0, Purpose::kExchange, {meeting_socket(configs[1])}}};
                                     meeting.hello_timeout = configs[1].hello_timeout;
                                     meeting.until = soon();
                                     {
                                       const auto connections = meet(meeting);
                                       const FrameBytes blob = encode(meeting.self.frame(FrameKind::kControl));
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

TEST(Local, ASecondRankZeroIsToldThatThePlaceIsTaken) {
  Config config = launched_world(2)[0];
  config.hello_timeout = milliseconds(50);
  const Fd first = listen_at(meeting_socket(config));
  EXPECT_THAT(start({config}), Each(AllOf(HasSubstr("Address already in use"), HasSubstr("HORO_JOB=another name"))));
}

TEST(Local, TheKernelSaysWhoIsAtTheOtherEnd) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd one(ends[0]), other(ends[1]);
  EXPECT_EQ(peer_user(one.get()), ::geteuid());
  const Fd tcp = listen_at(resolve("127.0.0.1:0", "test").front());
  EXPECT_EQ(peer_user(tcp.get()), std::nullopt);
}

// What each of three ranks throws if the blob of rank 1 is another one.
std::vector<std::string> start_with_card_of_rank_1(const std::vector<std::byte>& info) {
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
  PeerInfo info = make_card("127.0.0.1:1");
  const std::string ours = info.version;
  info.version = "9.9.9";
  auto bytes = encode(info);
  bytes.resize(bytes.size() + 7);  // and what follows is nothing that this version could read
  EXPECT_THAT(start_with_card_of_rank_1(bytes),
              Each("the version of horo must be equal on all ranks: it is " + ours +
                   " on rank 0, 9.9.9 on rank 1. Install the same version everywhere"));
}

TEST(PeerInfo, AnotherByteOrderIsRefused) {
  PeerInfo info = make_card("127.0.0.1:1");
  info.byte_order = "middle";
  EXPECT_THAT(start_with_card_of_rank_1(encode(info)), Each(HasSubstr("it is little on rank 0, middle on rank 1")));
}

TEST(PeerInfo, WhatIsNoCardIsNoVersion) {
  EXPECT_THAT(start_with_card_of_rank_1({}), Each(HasSubstr("one that gives no version on rank 1")));
  auto cut_off = encode(make_card("127.0.0.1:1"));
  cut_off.pop_back();
  EXPECT_THAT(start_with_card_of_rank_1(cut_off), Each(HasSubstr("what rank 1 says of itself cannot be read")));
}

}  // namespace
}  // namespace horo::test
