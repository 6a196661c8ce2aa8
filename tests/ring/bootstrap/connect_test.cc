// The start of ranks over TCP: late, repeated, missing and wrong ranks, and unauthenticated peers.

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstring>
#include <stdexcept>

#include "horo/base/error.h"
#include "horo/base/wire.h"
#include "ring/bootstrap/peer_info.h"
#include "ring/os/socket.h"
#include "ring/transport/handshake.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using std::chrono::milliseconds;

JobKey key(int value) {
  JobKey key;
  key.fill(static_cast<std::byte>(value));
  return key;
}

Links connect(const Config& config, std::uint32_t epoch = 0) {
  return connect_tcp(config, epoch, make_tcp_exchange(config, epoch));
}

void pass_a_byte(Links& links) {
  std::byte out{42}, in{0};
  const int peer = 1 - links.transport->rank();
  const std::vector<Transport::Op> ops{links.transport->post_send(peer, {}, {&out, 1}),
                                       links.transport->post_recv(peer, {}, {&in, 1})};
  links.transport->wait(ops, soon());
  EXPECT_EQ(in, out);
}

// Starts two ranks with these settings; returns what each threw, "" for nothing.
std::vector<std::string> start_two(const Config& zero, const Config& one, std::uint32_t epoch_of_one = 0) {
  const auto errors = run_threads({[&] {
                                     Links links = connect(zero);
                                     pass_a_byte(links);
                                   },
                                   [&] {
                                     Links links = connect(one, epoch_of_one);
                                     pass_a_byte(links);
                                   }});
  return {message_of(errors[0]), message_of(errors[1])};
}

bool accepts(const std::string& addr) {
  const Fd fd = dial(resolve(addr, "test").front());
  pollfd poll_fd{fd.get(), POLLOUT, 0};
  return fd.is_open() && ::poll(&poll_fd, 1, 1000) == 1 && error_of(fd.get()) == 0;
}

struct Pair {
  Config zero, one;
  Pair() {
    const std::string addr = free_address();
    zero = config_of(0, 2, addr);
    one = config_of(1, 2, addr);
  }
};

void set_short_timeout(Config& config) {
  config.start_timeout = milliseconds(300);
}

TEST(Connect, TheSameAddressCanBeUsedAgainAtOnce) {
  Pair pair;
  for (int session = 0; session < 5; ++session) {
    EXPECT_EQ(start_two(pair.zero, pair.one), (std::vector<std::string>{"", ""})) << session;
  }
}

TEST(Connect, RanksWithEqualKeysConnect) {
  Pair pair;
  pair.zero.key = pair.one.key = key(7);
  EXPECT_EQ(start_two(pair.zero, pair.one), (std::vector<std::string>{"", ""}));
}

TEST(Connect, RanksWithDifferentKeysDoNotConnectAndTheErrorNamesTheKey) {
  Pair pair;
  pair.zero.key = key(1);
  pair.one.key = key(2);
  set_short_timeout(pair.zero);
  set_short_timeout(pair.one);
  const auto errors = start_two(pair.zero, pair.one);
  EXPECT_NE(errors[0].find("rank 1 did not connect within 300 ms (HORO_START_TIMEOUT_MS)"), std::string::npos)
      << errors[0];
  EXPECT_NE(errors[1].find("key"), std::string::npos) << errors[1];
}

TEST(Connect, TheErrorKeepsTheAnswerOfAPeerThatHasEnded) {
  Pair pair;
  pair.zero.key = key(1);
  pair.one.key = key(2);
  set_short_timeout(pair.zero);
  pair.one.start_timeout = milliseconds(1'000);
  const std::string error = start_two(pair.zero, pair.one)[1];
  EXPECT_NE(error.find("refused"), std::string::npos) << error;
  EXPECT_NE(error.find("the two sides hold different keys"), std::string::npos) << error;
}

TEST(Connect, AnotherEpochIsRefused) {
  Pair pair;
  set_short_timeout(pair.zero);
  set_short_timeout(pair.one);
  for (const std::string& error : start_two(pair.zero, pair.one, /*epoch_of_one=*/1)) {
    EXPECT_NE(error.find("did not connect"), std::string::npos) << error;
  }
}

TEST(Connect, EveryRankNamesTheMissingRanks) {
  const std::string addr = free_address();
  std::vector<std::function<void()>> ranks;
  for (const int rank : {0, 1}) {
    ranks.push_back([&addr, rank] {
      Config config = config_of(rank, 4, addr);
      set_short_timeout(config);
      if (rank == 1) config.start_timeout = milliseconds(5'000);
      connect(config);
    });
  }
  for (const auto& error : run_threads(ranks)) {
    EXPECT_NE(message_of(error).find("ranks 2, 3 did not connect within 300 ms"), std::string::npos)
        << message_of(error);
    EXPECT_EQ(origin_of(error), 2);
  }
}

TEST(Connect, WithoutAKeyOnlyLoopbackIsUsed) {
  Config config = config_of(1, 2, "192.0.2.1:4000");
  try {
    connect(config);
    FAIL() << "connected";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("HORO_KEY_FD or HORO_KEY_FILE"), std::string::npos);
  }
}

TEST(Connect, AMalformedAddressIsRefused) {
  for (const char* addr : {"nonsense", "127.0.0.1:", ":5", "127.0.0.1:http-or-not"}) {
    EXPECT_THROW(connect(config_of(1, 2, addr)), std::invalid_argument) << addr;
  }
}

TEST(Connect, ARankListensAtItsPublishedAddressAlone) {
  Config config = config_of(0, 2, free_address());
  config.key = key(5);
  config.start_timeout = milliseconds(1);
  std::string published;
  const auto exchange = [&](std::span<const std::byte> mine) -> std::vector<std::vector<std::byte>> {
    published = read_peer_infos(std::vector(1, std::vector(mine.begin(), mine.end()))).front().address;
    const std::string elsewhere = "127.0.0.2" + published.substr(published.rfind(':'));
    EXPECT_TRUE(accepts(published));
    EXPECT_FALSE(accepts(elsewhere)) << elsewhere;
    return {{mine.begin(), mine.end()}, {mine.begin(), mine.end()}};
  };
  EXPECT_THROW(connect_tcp(config, 0, exchange), PeerLost);
  EXPECT_TRUE(published.starts_with("127.0.0.1:")) << published;
}

TEST(Connect, AnAddressOfNoInterfaceIsRefusedByRankZero) {
  Config config = config_of(0, 2, "192.0.2.1:4000");
  config.key = key(5);
  try {
    connect(config);
    FAIL() << "it listens";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("no interface of this host has that address"), std::string::npos)
        << error.what();
  }
}

std::string refusal(const Config& config) {
  try {
    connect(config);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Connect, APortInUseIsNamedWithARemedy) {
  const Fd taken = listen_at(resolve("127.0.0.1:0", "test").front());
  const std::string addr = to_text(local_address(taken.get()));
  Config config = config_of(0, 2, addr);
  config.hello_timeout = milliseconds(50);
  const std::string text = refusal(config);
  EXPECT_NE(text.find("HORO_ADDR=" + addr + ": rank 0 cannot listen"), std::string::npos) << text;
  EXPECT_NE(text.find("Address already in use. End the program that listens there, or choose another port"),
            std::string::npos)
      << text;
}

TEST(Connect, AnUnresolvableNameIsNamedWithARemedy) {
  const std::string text = refusal(config_of(1, 2, "no-such-host.invalid:4000"));
  EXPECT_NE(text.find("HORO_ADDR=no-such-host.invalid:4000: "), std::string::npos) << text;
  EXPECT_NE(text.find("a name that this host can resolve"), std::string::npos) << text;
}

TEST(Connect, AWorldOfOneOpensNoSocket) {
  const Config config = config_of(0, 1, "");
  const Links links = connect_tcp(config, 0, [](auto) -> std::vector<std::vector<std::byte>> { throw "not called"; });
  EXPECT_EQ(links.transport->size(), 1);
  EXPECT_TRUE(links.control->wait(Clock::now()).empty());
}

TEST(Exchange, GivesEveryRankTheBlobsOfAllRanks) {
  const std::string addr = free_address();
  std::vector<std::function<void()>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back([&addr, rank] {
      const auto exchange = make_tcp_exchange(config_of(rank, 4, addr), 7);
      for (std::size_t round = 0; round < 3; ++round) {
        const auto all =
            exchange(std::vector<std::byte>(round * 2048 * static_cast<std::size_t>(rank) / 3, std::byte(rank)));
        ASSERT_EQ(all.size(), 4u);
        for (std::size_t i = 0; i < 4; ++i) {
          EXPECT_EQ(all[i], std::vector<std::byte>(round * 2048 * i / 3, static_cast<std::byte>(i)));
        }
      }
    });
  }
  for (const auto& error : run_threads(ranks)) EXPECT_EQ(message_of(error), "");
}

// An unauthenticated peer: connects as soon as rank 0 listens, sends `greeting`, and stays connected.
class Intruder {
 public:
  Intruder(const std::string& addr, std::span<const std::byte> greeting) {
    const Address address = resolve(addr, "test").front();
    for (const TimePoint until = soon(); Clock::now() < until;) {
      fd_ = dial(address);
      if (!fd_.is_open()) continue;
      pollfd poll_fd{fd_.get(), POLLOUT, 0};
      ::poll(&poll_fd, 1, 1000);
      if (error_of(fd_.get()) == 0) break;
    }
    iovec part = as_iovec(greeting);
    if (!greeting.empty()) send_some(fd_.get(), {&part, 1});
  }

 private:
  Fd fd_;
};

std::vector<std::byte> honest_hello(int rank) {
  Config config = config_of(rank, 2, "");
  return Handshake::dialing(identity_of(config, 0), 0, Purpose::kExchange).take_output();
}

void expect_start_despite(const std::vector<std::vector<std::byte>>& greetings) {
  Pair pair;
  pair.zero.key = pair.one.key = key(3);
  const auto errors = run_threads({[&] {
                                     Links links = connect(pair.zero);
                                     pass_a_byte(links);
                                   },
                                   [&] {
                                     // Rank 1 connects after all intruders.
                                     std::vector<Intruder> intruders;
                                     for (const auto& greeting : greetings)
                                       intruders.emplace_back(pair.one.addr, greeting);
                                     Links links = connect(pair.one);
                                     pass_a_byte(links);
                                   }});
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
}

TEST(Intruders, SilentPeersDoNotDelayTheStart) {
  expect_start_despite(std::vector<std::vector<std::byte>>(100));
}

TEST(Intruders, GarbageAndFloodsAreDropped) {
  std::vector<std::vector<std::byte>> greetings{std::vector<std::byte>(5, std::byte('G')),
                                                std::vector<std::byte>(300, std::byte(0)),
                                                std::vector<std::byte>(1 << 20, std::byte(0xff))};
  expect_start_despite(greetings);
}

TEST(Intruders, APeerWithoutTheKeyIsDropped) {
  auto replayed = honest_hello(1);
  const auto twice = honest_hello(1);
  replayed.insert(replayed.end(), twice.begin(), twice.end());
  Frame huge;
  huge.kind = FrameKind::kHello;
  huge.job = hash64("horo");
  huge.from = 1;
  huge.length = 1ull << 40;
  const FrameBytes header = encode(huge);
  expect_start_despite({honest_hello(1), replayed, {header.begin(), header.end()}});
}

}  // namespace
}  // namespace horo::test
