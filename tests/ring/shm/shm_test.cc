// Shared memory between ranks: segments, the ranks that share them, and faulty or dying peers.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "horo/base/error.h"
#include "ring/shm/segment.h"
#include "ring/transport/byte_ring.h"
#include "ring/transport/factories.h"
#include "ring/transport/stream.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using testing::HasSubstr;

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

std::size_t segments_mapped() {
  std::ifstream maps("/proc/self/maps");
  std::size_t found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find("memfd:horo") != std::string::npos;
  return found;
}

Identity shm_identity(int rank) {
  Identity self;
  self.rank = rank;
  self.size = 2;
  return self;
}

// Rank 0 over shared memory. The test is rank 1 and can write anything to the memory.
class FaultyPeer {
 public:
  FaultyPeer() : FaultyPeer(ShmSegment::create(shm_stream_bytes(4096))) {}

  RingWords& to_victim() { return reinterpret_cast<RingWords*>(memory_.memory().data())[0]; }
  RingWords& from_victim() { return reinterpret_cast<RingWords*>(memory_.memory().data())[1]; }
  void hang_up() { Fd(std::move(socket_)); }

  // The error of rank 0 while it sends to and receives from this peer.
  std::string end_of_wait() {
    try {
      const std::vector<Transport::Op> ops{victim_->post_send(1, {}, out_), victim_->post_recv(1, {}, in_)};
      victim_->wait(ops, soon());
    } catch (const PeerLost& lost) {
      return lost.origin() == 1 ? lost.what() : "";
    }
    return "";
  }

 private:
  explicit FaultyPeer(ShmSegment theirs)
      : memory_(ShmSegment::map(Fd(::dup(theirs.file())), 1)), out_(10'000), in_(10) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("socketpair");
    socket_ = Fd(ends[0]);
    std::vector<Connection> connections;
    connections.push_back({Fd(ends[1]), 1, 0, Purpose::kData, "", std::move(theirs)});
    victim_ = make_stream_transport(config_of(0, 2, ""), shm_identity(0), std::move(connections));
  }

  ShmSegment memory_;
  Fd socket_;
  std::vector<std::byte> out_, in_;
  std::unique_ptr<Transport> victim_;
};

TEST(ShmSegment, BeginsWithZerosAndIsSharedWithItsOtherHolder) {
  ShmSegment mine = ShmSegment::create(10'000);
  const ShmSegment theirs = ShmSegment::map(Fd(::dup(mine.file())), 10'000);
  EXPECT_EQ(theirs.memory().size(), 10'000u);
  EXPECT_EQ(theirs.memory()[9'999], std::byte{0});
  mine.memory()[9'999] = std::byte{7};
  EXPECT_EQ(theirs.memory()[9'999], std::byte{7});
}

TEST(ShmSegment, ItsSizeCannotChange) {
  const ShmSegment mine = ShmSegment::create(10'000);
  EXPECT_NE(::ftruncate(mine.file(), 1), 0);
  EXPECT_NE(::ftruncate(mine.file(), 20'000), 0);
}

TEST(ShmSegment, AnUnsealedOneIsRefused) {
  Fd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(file.get(), 10'000), 0);
  EXPECT_THROW(ShmSegment::map(std::move(file), 1), ProtocolError);
}

TEST(ShmSegment, ATooSmallOneIsRefused) {
  const ShmSegment mine = ShmSegment::create(100);
  EXPECT_THROW(ShmSegment::map(Fd(::dup(mine.file())), 101), ProtocolError);
}

TEST(ShmSegment, MoreThanTheLimitIsRefused) {
  EXPECT_THROW(ShmSegment::create(ShmSegment::kMaxBytes + 1), std::invalid_argument);
}

TEST(ShmSegment, AForkedChildDoesNotMapIt) {
  const ShmSegment mine = ShmSegment::create(4096);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(static_cast<int>(segments_mapped()));
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Shm, NothingIsLeftBehindAfterManyWorlds) {
  run_ranks_well({3, Wire::kShm, {}}, [](Rank&) {});
  const std::size_t before = open_descriptors();
  for (int cycle = 0; cycle < 5; ++cycle) {
    run_ranks_well({3, Wire::kShm, {}}, [](Rank& rank) {
      std::byte out{1}, in{0};
      const int next = (rank.index() + 1) % 3, last = (rank.index() + 2) % 3;
      const std::vector<Transport::Op> ops{rank.transport().post_send(next, {}, {&out, 1}),
                                           rank.transport().post_recv(last, {}, {&in, 1})};
      rank.transport().wait(ops, soon());
      EXPECT_EQ(in, out);
    });
  }
  EXPECT_LE(open_descriptors(), before + 5);  // free_address() keeps a few
  EXPECT_EQ(segments_mapped(), 0u);
}

// Runs `body(rank, links)` for four ranks of two hosts, each in a thread.
void on_two_hosts(const std::string& transport, const std::function<void(int, Links&)>& body) {
  const std::string addr = free_address();
  std::vector<std::function<void()>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back([=, &body] {
      Config config = config_of(rank, 4, addr);
      config.transport = transport;
      config.host_id = rank < 2 ? "a" : "b";
      config.local_size = 2;
      Links links = connect_tcp(config, 0, make_tcp_exchange(config, 0));
      body(rank, links);
      links.control->goodbye(std::chrono::seconds(1));
    });
  }
  for (const auto& error : run_threads(ranks)) EXPECT_EQ(message_of(error), "");
}

TEST(Shm, RanksOfOneHostShareMemoryAndTheOthersUseTcp) {
  on_two_hosts("shm", [](int rank, Links& links) {
    const std::vector<std::byte> out(1 << 20, std::byte(rank));
    std::vector<std::vector<std::byte>> in(4, out);
    std::vector<Transport::Op> ops;
    for (int peer = 0; peer < 4; ++peer) {
      if (peer == rank) continue;
      ops.push_back(links.transport->post_send(peer, {}, out));
      ops.push_back(links.transport->post_recv(peer, {}, in[static_cast<std::size_t>(peer)]));
    }
    links.transport->wait(ops, soon());
    for (int peer = 0; peer < 4; ++peer) {
      EXPECT_EQ(in[static_cast<std::size_t>(peer)], std::vector<std::byte>(out.size(), std::byte(peer)));
      if (peer == rank) continue;
      EXPECT_EQ(links.transport->kernel_bytes_sent_to(peer) == 0, peer / 2 == rank / 2) << peer;
    }
    EXPECT_EQ(links.transport->traffic(0).frames_sent, 3u);
  });
}

TEST(Shm, AnAbortReachesRanksOverSharedMemoryAndTcp) {
  on_two_hosts("auto", [](int rank, Links& links) {
    if (rank == 1) links.transport->abort(1, "rank 1 aborts");
    std::byte in{};
    const int next = (rank + 1) % 4;
    try {
      const Transport::Op op = links.transport->post_recv(next, {}, {&in, 1});
      links.transport->wait({&op, 1}, soon());
      FAIL();
    } catch (const PeerLost& lost) {
      EXPECT_STREQ(lost.what(), "rank 1 aborts");
      links.transport->abort(lost.origin(),
                             lost.what());  // so that other ranks receive the abort before this rank's end
    }
  });
}

TEST(Shm, APeerWithAnImpossibleWritePositionIsLost) {
  FaultyPeer peer;
  peer.to_victim().written.store(5'000);
  EXPECT_THAT(peer.end_of_wait(), HasSubstr("connection to rank 1"));
}

TEST(Shm, APeerWithAnImpossibleReadPositionIsLost) {
  FaultyPeer peer;
  peer.from_victim().taken.store(std::uint64_t{1} << 60);
  EXPECT_THAT(peer.end_of_wait(), HasSubstr("connection to rank 1"));
}

TEST(Shm, APeerThatWritesNoFramesIsLost) {
  FaultyPeer peer;
  peer.to_victim().written.store(4'096);
  EXPECT_THAT(peer.end_of_wait(), HasSubstr("connection to rank 1 was ended"));
}

TEST(Shm, APeerThatEndsWithoutAGoodbyeIsLost) {
  FaultyPeer peer;
  peer.hang_up();
  EXPECT_THAT(peer.end_of_wait(), HasSubstr("without a goodbye"));
}

}  // namespace
}  // namespace horo::test
