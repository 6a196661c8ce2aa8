// A long message is received into the memory of the expected receive, together with its header: a right guess takes one
// call, and a wrong guess loses no bytes.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>
#include <utility>

#include "ring/transport/data_connection.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using Bytes = std::vector<std::byte>;
using Expected = OpTable::Expected;

Bytes repeated(std::size_t size, int seed) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  return bytes;
}

Identity identity(int rank) {
  Identity self;
  self.rank = rank;
  self.size = 2;
  return self;
}

// The two ends of a connection.
class Ends {
 public:
  explicit Ends(bool checks) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("socketpair");
    for (int rank = 0; rank < 2; ++rank) {
      const int room = 200'000;  // a size that every system allows
      ::setsockopt(ends[rank], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
      Connection connection{Fd(ends[rank]), 1 - rank, 0, Purpose::kData};
      connection.checks = checks;
      (rank == 0 ? from : to).emplace(std::move(connection), identity(rank), 32 << 10);
    }
  }

  void send(const Tag& tag, const Bytes& bytes) {
    waiting.push_back({1, tag, bytes, {}});
    write();
  }

  // Writes as much as the socket takes, of the messages that wait as well.
  void write() {
    while (true) {
      if (!from->out().is_sending() && !waiting.empty()) {
        from->out().begin_message(std::move(waiting.front()));
        waiting.pop_front();
      }
      if (from->write() == 0) return;
      from->out().take_sent();
    }
  }

  // Reads once with an expected receive, then without one, until a message is complete; it is received into `memory`.
  void receive(const std::optional<Expected>& expected, Bytes& memory) {
    bool is_first = true;
    for (const TimePoint until = soon(); Clock::now() < until;) {
      const auto arrival = to->next();
      if (arrival == FrameReader::Arrival::kMessage) return to->in().end_message();
      if (arrival == FrameReader::Arrival::kHeader) to->in().place({OpTable::Place::kPosted, 1, memory});
      if (arrival != FrameReader::Arrival::kNothing) continue;
      write();
      to->read(std::exchange(is_first, false) ? expected : std::nullopt);
      ++reads;
    }
  }

  std::optional<DataConnection> from, to;
  std::deque<Outgoing> waiting;
  int reads = 0;
};

class ExpectedMessages : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Checks, ExpectedMessages, testing::Bool());

TEST_P(ExpectedMessages, TakeOneCallWithTheirHeaders) {
  for (const std::size_t size : {5'000UL, 65'536UL, 130'000UL}) {  // what a socket holds
    Ends ends(GetParam());
    const Bytes sent = repeated(size, 1);
    Bytes got(size);
    ends.send({}, sent);
    ends.receive(Expected{{}, got}, got);
    EXPECT_EQ(got, sent);
    EXPECT_EQ(ends.reads, 1) << size;
  }
}

TEST_P(ExpectedMessages, MayBeLongerThanOneCallMoves) {
  Ends ends(GetParam());
  const Bytes sent = repeated(2 * FrameWriter::kQuantumBytes + 100, 1);
  Bytes got(sent.size());
  ends.send({}, sent);
  ends.receive(Expected{{}, got}, got);
  EXPECT_EQ(got, sent);
}

TEST_P(ExpectedMessages, AreCompleteWhereTheGuessWasWrong) {
  Tag another;
  another.segment = 7;
  for (const std::size_t size : {10UL, 5'000UL, 300'000UL}) {
    Ends ends(GetParam());
    const Bytes first = repeated(size, 1), second = repeated(100'000, 2), third = repeated(50, 3);
    Bytes one(first.size()), two(second.size()), three(third.size());
    ends.send(another, first);
    ends.send({}, second);
    ends.send({}, third);
    ends.receive(Expected{{}, two}, one);
    ends.receive(Expected{{}, two}, two);
    ends.receive(Expected{{}, three}, three);
    EXPECT_EQ(one, first) << size;
    EXPECT_EQ(two, second) << size;
    EXPECT_EQ(three, third) << size;
  }
}

// A message of another length is not the expected one: the bytes behind it are no part of it.
TEST_P(ExpectedMessages, AreCompleteWhereTheLengthDiffers) {
  for (const std::size_t size : {20'000UL, 5'000UL, 90'000UL}) {
    Ends ends(GetParam());
    const Bytes first = repeated(size, 1), second = repeated(20'001, 2);
    Bytes one(first.size()), two(second.size());
    ends.send({}, first);
    ends.send({}, second);
    ends.receive(Expected{{}, two}, one);
    ends.receive(Expected{{}, two}, two);
    EXPECT_EQ(one, first) << size;
    EXPECT_EQ(two, second) << size;
  }
}

TEST_P(ExpectedMessages, AreNotGuessedAfterAWrongGuess) {
  Ends ends(GetParam());
  Tag another;
  another.plan = 3;
  const Bytes sent = repeated(5'000, 1), untouched(6'000);
  Bytes expected = untouched, got(sent.size());
  for (int message = 0; message < 3; ++message) {
    expected = untouched;
    ends.send(another, sent);
    ends.receive(Expected{{}, expected}, got);
    EXPECT_EQ(got, sent);
  }
  EXPECT_EQ(expected, untouched);
  int calls = 0;
  for (int message = 0; message < 9; ++message) {
    ends.reads = 0;
    ends.send(another, sent);
    ends.receive(Expected{another, got}, got);
    EXPECT_EQ(got, sent);
    calls = ends.reads;
  }
  EXPECT_EQ(calls, 1);
}

TEST(OpTable, ExpectsTheOldestReceiveOfAPeer) {
  OpTable table(2, 1 << 20);
  Bytes memory(100);
  std::optional<EarlyMessage> early;
  const auto segment = [&] { return table.expected(1) ? static_cast<int>(table.expected(1)->tag.segment) : -1; };
  EXPECT_EQ(segment(), -1);
  for (const std::uint32_t number : {5U, 3U, 9U}) table.add_recv(1, {0, 0, number, 0}, memory, early);
  EXPECT_EQ(segment(), 5);
  EXPECT_EQ(table.expected(1)->memory.data(), memory.data());
  EXPECT_FALSE(table.expected(0));
  table.match(1, {0, 0, 5, 0}, memory.size());
  EXPECT_EQ(segment(), 3);
  table.match(1, {0, 0, 9, 0}, memory.size());
  EXPECT_EQ(segment(), 3);
  table.cancel({0, 0, "for a test"});
  EXPECT_EQ(segment(), -1);
}

class LongMessages : public testing::TestWithParam<Wire> {};
INSTANTIATE_TEST_SUITE_P(Wires, LongMessages,
                         testing::Values(Wire::kTcp, Wire::kCheckedTcp, Wire::kWideTcp, Wire::kShm, Wire::kMpi),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(LongMessages, ArriveInAnyOrderAndFromAnyNumberOfPlans) {
  run_ranks_well({3, GetParam(), {}}, [](Rank& rank) {
    std::mt19937_64 chance(7);  // the same on all ranks, so that senders and receivers agree about lengths
    for (std::uint32_t round = 0; round < 20; ++round) {
      std::vector<std::size_t> sizes;
      for (int i = 0; i < 8; ++i) sizes.push_back(chance() % 3 == 0 ? chance() % 5'000 : chance() % 300'000);
      std::vector<Bytes> out, in;
      std::vector<Transport::Op> ops;
      for (std::size_t i = 0; i < sizes.size(); ++i) out.push_back(repeated(sizes[i], static_cast<int>(i)));
      std::vector<std::size_t> order(sizes.size());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937_64(round * 3 + static_cast<std::uint32_t>(rank.index())));
      for (int peer = 0; peer < rank.size(); ++peer) {
        if (peer == rank.index()) continue;
        for (const std::size_t size : sizes) in.emplace_back(size);
        for (const std::size_t i : order) {
          const Tag tag{static_cast<std::uint32_t>(i % 2), round, static_cast<std::uint32_t>(i), 0};
          ops.push_back(rank.transport().post_send(peer, tag, out[i]));
          ops.push_back(rank.transport().post_recv(peer, tag, in[in.size() - sizes.size() + i]));
        }
      }
      rank.transport().wait(ops, soon());
      for (std::size_t i = 0; i < in.size(); ++i) EXPECT_EQ(in[i], out[i % sizes.size()]) << i;
    }
  });
}

}  // namespace
}  // namespace horo::test
