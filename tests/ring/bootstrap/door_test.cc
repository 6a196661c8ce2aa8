// Ranks that have opened their doors before it is known which ranks connect.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <stdexcept>
#include <thread>

#include "horo/base/auth.h"
#include "horo/base/error.h"
#include "horo/base/say.h"
#include "ring/bootstrap/peer_info.h"
#include "ring/os/socket.h"
#include "ring/shm/arena.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Cards = std::vector<std::vector<std::byte>>;

Config on_host(const std::string& host, int rank) {
  Config config = config_of(rank, 3, "127.0.0.1:1");
  config.host_id = host;
  config.transport = "auto";
  config.local_size = 2;
  return config;
}

std::string address_in(const Door& door) {
  return read_peer_infos(std::vector(1, door.card)).front().address;
}

void allow_many_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

bool is_open(const std::string& address) {
  const Fd fd = dial(resolve(address, "test").front());
  return fd.is_open() && error_of(fd.get()) == 0;
}

// The ranks of an epoch have other numbers than those that opened the doors.
TEST(Door, RanksConnectByTheirCardsAlone) {
  std::vector<Config> configs;
  std::vector<Door> doors;
  Cards cards;
  for (const auto& [host, rank] : {std::pair("one", 1), {"other", 2}, {"other", 0}}) {
    configs.push_back(on_host(host, rank));
    doors.push_back(doors_of(configs.back())());
    cards.push_back(doors.back().card);
    configs.back().rank = static_cast<int>(configs.size()) - 1;
  }
  EXPECT_THAT((std::vector{local_size_in(cards, 0), local_size_in(cards, 1), local_size_in(cards, 2)}),
              ElementsAre(1, 2, 2));
  std::vector<std::function<void()>> ranks;
  for (std::size_t rank = 0; rank < configs.size(); ++rank) {
    ranks.push_back([&, rank] {
      const Links links = connect_doors(configs[rank], 7, doors[rank], cards);
      EXPECT_EQ(links.transport->size(), 3);
      EXPECT_EQ(links.arenas != nullptr, rank != 0);
    });
  }
  for (const auto& error : run_threads(ranks)) EXPECT_EQ(message_of(error), "");
}

TEST(Door, RanksUseTheSharedMemoryOfAnEarlierEpochAgain) {
  std::array<Config, 3> configs;
  std::array<std::array<Links, 3>, 2> epochs;
  for (std::size_t epoch = 0; epoch < epochs.size(); ++epoch) {
    std::array<Door, 3> doors;
    Cards cards;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      configs[rank] = on_host("one", static_cast<int>(rank));
      doors[rank] = doors_of(configs[rank])();
      if (epoch > 0) doors[rank].arenas = epochs[0][rank].arenas;
      cards.push_back(doors[rank].card);
    }
    std::vector<std::function<void()>> ranks;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      ranks.push_back([&, rank] {
        epochs[epoch][rank] = connect_doors(configs[rank], static_cast<std::uint32_t>(epoch), doors[rank], cards);
      });
    }
    for (const auto& error : run_threads(ranks)) EXPECT_EQ(message_of(error), "");
  }
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const auto &before = epochs[0][rank].arenas, &after = epochs[1][rank].arenas;
    EXPECT_EQ(before->own(), after->own());
    for (const int peer : {0, 1, 2}) EXPECT_EQ(before->at(peer, 0, 64), after->at(peer, 0, 64));
    EXPECT_FALSE(after->own()->end_epoch()) << "the other epoch uses it";
  }
}

// Silent connections to a door: as many at one time, because the thread replaces those that the rank closes.
class Strangers {
 public:
  Strangers(const Door& door, std::size_t count) : address_(resolve(address_in(door), "test").front()) {
    for (std::size_t i = 0; i < count; ++i) open_.push_back(dial(address_));
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) replace_closed();
    });
  }

 private:
  void replace_closed() {
    for (Fd& one : open_) {
      std::byte byte;
      iovec part{&byte, 1};
      if (receive_some(one.get(), {&part, 1}).ended) one = dial(address_);
    }
  }

  Address address_;
  std::vector<Fd> open_;
  std::jthread thread_;
};

TEST(Door, StrangersAtADoorDoNotTakeThePlaceOfARank) {
  allow_many_descriptors();
  for (const std::size_t strangers : {600, 2000}) {
    std::vector<Config> configs;
    std::vector<Door> doors;
    Cards cards;
    std::vector<std::function<void()>> ranks;
    for (const int rank : {0, 1, 2, 3}) {
      configs.push_back(on_host(say("host", rank), rank));
      configs.back().size = 4;
      configs.back().key.emplace().fill(std::byte{5});
      doors.push_back(doors_of(configs.back())());
      cards.push_back(doors.back().card);
    }
    const Strangers at_the_door(doors[0], strangers);
    for (std::size_t rank = 0; rank < configs.size(); ++rank) {
      ranks.push_back([&, rank] { connect_doors(configs[rank], 1, doors[rank], cards); });
    }
    for (const auto& error : run_threads(ranks)) EXPECT_EQ(message_of(error), "") << strangers;
  }
}

TEST(Door, IsOpenAsLongAsItExists) {
  std::string address;
  {
    const OpenDoor open = doors_of(on_host("one", 0));
    const Door door = open(), another = open();
    address = address_in(door);
    EXPECT_NE(address, address_in(another));
    EXPECT_TRUE(is_open(address));
  }
  EXPECT_FALSE(is_open(address));
}

TEST(Door, ARankThatDoesNotConnectIsMissedByName) {
  Config config = on_host("one", 0);
  config.size = 2;
  config.start_timeout = std::chrono::milliseconds(50);
  const Door door = doors_of(config)();
  const Cards cards = {door.card, doors_of(config)().card};
  const auto errors = run_threads({[&] { connect_doors(config, 1, door, cards); }});
  EXPECT_EQ(origin_of(errors[0]), 1);
  EXPECT_THAT(message_of(errors[0]), HasSubstr("rank 1 did not connect"));
}

// Rank 1 has all its connections and waits for the memory of rank 0, which waits longer for rank 2.
TEST(Door, ARankThatMissesNoneReportsTheRankThatItsNeighbourMisses) {
  std::vector<Config> configs = {on_host("one", 0), on_host("one", 1), on_host("other", 2)};
  std::vector<Door> doors;
  Cards cards;
  for (Config& config : configs) {
    config.start_timeout = std::chrono::milliseconds(config.rank == 1 ? 300 : 600);
    doors.push_back(doors_of(config)());
    cards.push_back(doors.back().card);
  }
  const Door wrong = doors_of(configs[0])();
  const Cards of_two = {wrong.card, cards[1], cards[2]};
  const auto errors = run_threads({[&] { connect_doors(configs[0], 7, doors[0], cards); },
                                   [&] { connect_doors(configs[1], 7, doors[1], cards); },
                                   [&] { connect_doors(configs[2], 7, doors[2], of_two); }});
  for (const int rank : {0, 1}) {
    EXPECT_EQ(origin_of(errors[static_cast<std::size_t>(rank)]), 2);
    EXPECT_THAT(message_of(errors[static_cast<std::size_t>(rank)]), HasSubstr("rank 0: rank 2 did not connect"));
  }
}

// A rank that is out of the job knows the doors of the next epoch and the secret of its own.
TEST(Door, TheSecretOfAnOldEpochOpensNone) {
  Config zero = on_host("one", 0), one = on_host("other", 1);
  zero.size = one.size = 2;
  zero.key = one.key = make_job_key();
  Config old = one;
  old.key = make_job_key();
  old.start_timeout = std::chrono::milliseconds(300);
  const Door at_zero = doors_of(zero)(), at_one = doors_of(one)(), at_old = doors_of(old)();
  const auto errors = run_threads(
      {[&] {
         connect_doors(zero, 7, at_zero, Cards{at_zero.card, at_one.card});
       },
       [&] {
         for (const std::uint32_t epoch : {6U, 7U}) {
           EXPECT_THROW(connect_doors(old, epoch, at_old, Cards{at_zero.card, at_old.card}), std::exception);
         }
         connect_doors(one, 7, at_one, Cards{at_zero.card, at_one.card});
       }});
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
}

TEST(Door, ACardThatCannotBeReadIsRefused) {
  Config config = on_host("one", 0);
  config.size = 2;
  const Door door = doors_of(config)();
  EXPECT_THROW(connect_doors(config, 1, door, Cards{door.card, {}}), std::invalid_argument);
  EXPECT_THROW(connect_doors(config, 1, door, Cards{door.card}), std::invalid_argument);
  Cards cut = {door.card, door.card};
  cut[1].pop_back();
  EXPECT_THROW(connect_doors(config, 1, door, cut), PeerLost);
}

}  // namespace
}  // namespace horo::test
