// Striped messages: the bookkeeping by itself, transports of threads, and a peer that sends invalid stripes.
#include "ring/transport/stripes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "horo/base/error.h"
#include "ring/transport/factories.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using testing::HasSubstr;
using StripeBytes = std::vector<std::byte>;

constexpr int kStripeWidth = 3;

StripeBytes pattern_of(std::size_t bytes, unsigned seed) {
  StripeBytes pattern(bytes);
  for (std::size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<std::byte>((i * 2654435761u + seed) >> 13);
  return pattern;
}

Frame frame_of(const Outgoing& sent) {
  Frame frame;
  const Stripe stripe = sent.stripe.value();
  frame.kind = stripe.offset == 0 ? FrameKind::kStriped : FrameKind::kStripe;
  frame.channel = sent.tag.channel;
  frame.plan = sent.tag.plan;
  frame.key_hash = stripe.offset == 0 ? sent.tag.key_hash : stripe.number;
  frame.offset = stripe.offset == 0 ? stripe.total : stripe.offset;
  frame.length = sent.bytes.size();
  return frame;
}

// Stripes that are sent, with the table that their messages come from.
struct StripeSender {
  Stripes stripes{kStripeWidth};
  OpTable table{2, 1 << 20};

  std::optional<Outgoing> next() { return stripes.next(/*is_first_connection=*/true, table, 1); }

  std::vector<Outgoing> send_all(const Tag& tag, const StripeBytes& out) {
    table.add_send(1, tag, out);
    std::vector<Outgoing> sent;
    while (const auto stripe = next()) sent.push_back(*stripe);
    return sent;
  }
};

TEST(Stripes, StripesCoverTheMessageOnce) {
  for (const std::size_t bytes : {65'537ul, 100'000ul, 1ul << 20, (5ul << 20) + 3}) {
    StripeSender sender;
    const StripeBytes out = pattern_of(bytes, 1);
    std::size_t at = 0;
    for (const Outgoing& stripe : sender.send_all({}, out)) {
      EXPECT_EQ(stripe.stripe.value().offset, at);
      EXPECT_EQ(stripe.bytes.data(), out.data() + at);
      EXPECT_LE(stripe.bytes.size(), Stripes::kLongestBytes);
      at += stripe.bytes.size();
    }
    EXPECT_EQ(at, bytes);
  }
}

TEST(Stripes, AMessageUpToTheLimitIsNotCut) {
  StripeSender sender;
  const StripeBytes out = pattern_of(Stripes::kWholeBytes, 1);
  const auto sent = sender.send_all({}, out);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_FALSE(sent[0].stripe.has_value());
}

TEST(Stripes, AMessageIsSentWhenAllItsStripesAre) {
  StripeSender sender;
  const StripeBytes out = pattern_of(1 << 20, 1);
  const auto sent = sender.send_all({}, out);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const auto whole = sender.stripes.on_sent(sent[sent.size() - 1 - i], 80);
    ASSERT_EQ(whole.has_value(), i + 1 == sent.size());
    if (!whole) continue;
    EXPECT_EQ(whole->message.op, sent[0].op);
    EXPECT_EQ(whole->frame_bytes, 80 * sent.size());
  }
}

TEST(Stripes, ALaterStripeWaitsForTheFirstOneOfItsMessage) {
  StripeSender sender;
  Stripes receiver(kStripeWidth);
  const StripeBytes out = pattern_of(200'000, 1);
  StripeBytes in(out.size());
  const auto sent = sender.send_all({}, out);
  const Frame first = frame_of(sent[0]), later = frame_of(sent[1]);
  const auto match = [&](const Tag&, std::uint64_t) { return OpTable::Match{OpTable::Place::kPosted, 9, in}; };
  EXPECT_FALSE(receiver.place(later, /*is_first_connection=*/false, match));
  EXPECT_EQ(receiver.place(first, /*is_first_connection=*/true, match).value().memory.data(), in.data());
  EXPECT_EQ(receiver.place(later, /*is_first_connection=*/false, match).value().memory.data(),
            in.data() + later.offset);
}

TEST(Stripes, AReleasedMessageIsSentFromACopyAndItsRestIsDropped) {
  StripeSender sender;
  Stripes receiver(kStripeWidth);
  StripeBytes out = pattern_of(1 << 20, 1), in(out.size());
  const StripeBytes before = out;
  const Tag tag{1, 2, 0, 0};
  sender.table.add_send(1, tag, out);
  const Frame first = frame_of(sender.next().value()), later = frame_of(sender.next().value());
  const auto match = [&](const Tag&, std::uint64_t) { return OpTable::Match{OpTable::Place::kPosted, 9, in}; };
  EXPECT_EQ(receiver.place(first, /*is_first_connection=*/true, match).value().place, OpTable::Place::kPosted);
  sender.stripes.release(1, 2);
  receiver.release(1, 2);
  std::fill(out.begin(), out.end(), std::byte{0});
  EXPECT_EQ(receiver.place(later, /*is_first_connection=*/false, match).value().place, OpTable::Place::kDropped);
  while (const auto rest = sender.next()) {
    EXPECT_EQ(rest->op, 0u);
    EXPECT_TRUE(std::equal(rest->bytes.begin(), rest->bytes.end(), before.begin() + rest->stripe.value().offset));
  }
}

// A transport of rank 0 with two connections to rank 1, which is the test.
class StripedPeer {
 public:
  StripedPeer() {
    Config config = config_of(0, 2, "");
    config.deadline = std::chrono::milliseconds(5'000);
    Identity self;
    self.size = 2;
    std::vector<Connection> connections;
    for (int number = 0; number < 2; ++number) {
      int pair[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) raise_errno("socketpair");
      ends.emplace_back(pair[0]);
      Connection connection{Fd(pair[1]), 1, 0, Purpose::kData};
      connection.number = number;
      connection.width = 2;
      connections.push_back(std::move(connection));
    }
    transport = make_stream_transport(config, self, std::move(connections));
  }

  void send(int number, Frame frame, std::size_t bytes) {
    frame.from = 1;
    const auto message = message_of(frame, pattern_of(bytes, 3));
    iovec part = as_iovec(message);
    send_some(ends[static_cast<std::size_t>(number)].get(), {&part, 1});
  }

  // What rank 0 throws when it waits for a message of that length.
  std::exception_ptr receive(std::size_t bytes) {
    StripeBytes in(bytes);
    return receive_from(1, *transport, in);
  }

  std::vector<Fd> ends;
  std::unique_ptr<Transport> transport;
};

Frame first_stripe(std::uint64_t total) {
  Frame frame;
  frame.kind = FrameKind::kStriped;
  frame.offset = total;
  return frame;
}

Frame later_stripe(std::uint64_t offset, std::uint64_t number = 1) {
  Frame frame;
  frame.kind = FrameKind::kStripe;
  frame.offset = offset;
  frame.key_hash = number;
  return frame;
}

TEST(Stripes, StripesMayArriveInAnyOrderOverAnyConnection) {
  StripedPeer peer;
  peer.send(1, later_stripe(600), 400);
  peer.send(0, first_stripe(1'000), 100);
  peer.send(0, later_stripe(100), 500);
  EXPECT_EQ(message_of(peer.receive(1'000)), "");
}

TEST(Stripes, AnInvalidStripeEndsTheNamedConnection) {
  struct Case {
    int number;
    Frame frame;
    std::size_t bytes;
    const char* text;
  };
  Frame foreign = later_stripe(100);
  foreign.plan = 5;
  const Case cases[] = {{1, later_stripe(900), 101, "a stripe of 101 bytes at 900 of a message of 1000"},
                        {1, later_stripe(0), 901, "a stripe of 901 bytes at 0 of a message of 1000"},
                        {1, later_stripe(1ull << 63), 10, "of a message of 1000"},
                        {1, later_stripe(100), 0, "a stripe of 0 bytes"},
                        {1, later_stripe(100, 0), 10, "a stripe of message 0, which has ended"},
                        {1, first_stripe(1'000), 10, "the first stripe of a message on another connection"},
                        {1, foreign, 10, "a stripe with the tag of another message"},
                        {0, first_stripe(1'000), 1'000, "a stripe of 1000 bytes of a message of 1000"}};
  for (const Case& one : cases) {
    StripedPeer peer;
    peer.send(0, first_stripe(1'000), 100);
    peer.send(one.number, one.frame, one.bytes);
    const auto error = peer.receive(1'000);
    EXPECT_EQ(origin_of(error), 1) << one.text;
    const std::string name = one.number == 0 ? "connection 1 of 2 to rank 1" : "connection 2 of 2 to rank 1";
    EXPECT_THAT(message_of(error), HasSubstr("rank 0: " + name + " was ended: ")) << one.text;
    EXPECT_THAT(message_of(error), HasSubstr(one.text));
  }
}

TEST(Stripes, AStripeOnTheOnlyConnectionEndsIt) {
  Config config = config_of(0, 2, "");
  Identity self;
  self.size = 2;
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  const Fd theirs(pair[0]);
  std::vector<Connection> connections;
  connections.push_back({Fd(pair[1]), 1, 0, Purpose::kData});
  const auto transport = make_stream_transport(config, self, std::move(connections));
  Frame frame = first_stripe(1'000);
  frame.from = 1;
  const auto message = message_of(frame, pattern_of(10, 1));
  iovec part = as_iovec(message);
  send_some(theirs.get(), {&part, 1});
  StripeBytes in(1'000);
  const Transport::Op op = transport->post_recv(1, {}, in);
  EXPECT_THROW(transport->wait({&op, 1}, soon(5'000)), PeerLost);
}

// Long and short messages with equal tags, one after the other.
void exchange_in_turn(Transport& transport, int messages, std::size_t bytes) {
  const int peer = 1 - transport.rank();
  std::vector<StripeBytes> out, in;
  std::vector<Transport::Op> ops;
  for (int i = 0; i < messages; ++i) {
    out.push_back(pattern_of(i % 3 == 2 ? 100 : bytes + static_cast<std::size_t>(i), static_cast<unsigned>(i)));
    in.emplace_back(out.back().size());
  }
  for (int i = 0; i < messages; ++i) {
    const auto at = static_cast<std::size_t>(i);
    ops.push_back(transport.post_send(peer, {}, out[at]));
    ops.push_back(transport.post_recv(peer, {}, in[at]));
  }
  transport.wait(ops, soon());
  EXPECT_EQ(in, out);
}

WorldOptions wide_world(std::size_t width) {
  WorldOptions options{.size = 2, .wire = Wire::kTcp, .config = {}};
  options.config.tcp_width = width;
  return options;
}

TEST(WideLinks, MessagesWithEqualTagsMatchInOrder) {
  for (const std::size_t width : {2ul, 4ul}) {
    run_ranks_well(wide_world(width), [](Rank& rank) { exchange_in_turn(rank.transport(), 12, 700'000); });
  }
}

// The receive is posted when stripes have arrived on several connections.
TEST(WideLinks, AMessageMayArriveBeforeItsReceive) {
  run_ranks_well(wide_world(4), [](Rank& rank) {
    const StripeBytes out = pattern_of(3 << 20, 5), small(8);
    StripeBytes in(out.size()), small_in(8);
    const int peer = 1 - rank.index();
    const Transport::Op sends[] = {rank.transport().post_send(peer, {0, 1, 0, 0}, out),
                                   rank.transport().post_send(peer, {0, 2, 0, 0}, small)};
    const Transport::Op second = rank.transport().post_recv(peer, {0, 2, 0, 0}, small_in);
    rank.transport().wait({&second, 1}, soon());
    const Transport::Op first = rank.transport().post_recv(peer, {0, 1, 0, 0}, in);
    rank.transport().wait({&first, 1}, soon());
    rank.transport().wait(sends, soon());
    EXPECT_EQ(in, out);
  });
}

// One receive after the other, while the first messages are still arriving.
TEST(WideLinks, MessagesWithEqualTagsMatchInOrderWhereReceivesAreLate) {
  run_ranks_well(wide_world(4), [](Rank& rank) {
    const int peer = 1 - rank.index();
    std::vector<StripeBytes> out, in;
    std::vector<Transport::Op> ops;
    for (unsigned i = 0; i < 8; ++i) {
      out.push_back(pattern_of(i % 4 == 3 ? 8 : 700'000 + i, i));
      in.emplace_back(out.back().size());
    }
    for (const StripeBytes& one : out) ops.push_back(rank.transport().post_send(peer, {}, one));
    for (StripeBytes& one : in) {
      const Transport::Op received = rank.transport().post_recv(peer, {}, one);
      rank.transport().wait({&received, 1}, soon());
    }
    rank.transport().wait(ops, soon());
    EXPECT_EQ(in, out);
  });
}

TEST(WideLinks, ALengthThatDiffersIsAMismatchAndOtherPlansGoOn) {
  run_ranks_well(wide_world(3), [](Rank& rank) {
    const int peer = 1 - rank.index();
    const StripeBytes out = pattern_of(2 << 20, 5);
    StripeBytes in(out.size() - 1);
    const Transport::Op ops[] = {rank.transport().post_send(peer, {0, 1, 0, 0}, out),
                                 rank.transport().post_recv(peer, {0, 1, 0, 0}, in)};
    EXPECT_THROW(rank.transport().wait(ops, soon()), Mismatch);
    exchange_in_turn(rank.transport(), 3, 300'000);
  });
}

TEST(WideLinks, AnAbortDuringAMessageReachesThePeer) {
  const auto errors = run_ranks(wide_world(4), [](Rank& rank) {
    StripeBytes bytes(16 << 20);
    const int peer = 1 - rank.index();
    if (rank.index() == 1) throw PeerLost(1, "rank 1 has had enough");
    const Transport::Op ops[] = {rank.transport().post_send(peer, {}, bytes),
                                 rank.transport().post_recv(peer, {0, 7, 0, 0}, bytes)};
    rank.transport().wait(ops, soon());
  });
  EXPECT_EQ(message_of(errors[0]), "rank 1 has had enough");
}

TEST(WideLinks, APeerHasLeftWhenAllItsConnectionsHaveEnded) {
  run_ranks_well(wide_world(4), [](Rank& rank) {
    exchange_in_turn(rank.transport(), 2, 300'000);
    if (rank.index() == 1) return rank.transport().leave();
    for (const TimePoint until = soon(); !rank.transport().has_left(1) && Clock::now() < until;) {
    }
    EXPECT_TRUE(rank.transport().has_left(1));
  });
}

// Each stripe is a frame with a header; the kernel's count of all connections agrees.
TEST(WideLinks, WireBytesCountAllConnections) {
  run_ranks_well(wide_world(4), [](Rank& rank) {
    const std::uint64_t before = rank.transport().kernel_bytes_sent();
    exchange_in_turn(rank.transport(), 2, 1 << 20);
    const Traffic traffic = rank.transport().traffic(0);
    const auto by_kernel = [&] { return rank.transport().kernel_bytes_sent() - before; };
    for (const TimePoint until = soon(); by_kernel() < traffic.bytes_sent && Clock::now() < until;) {
    }
    EXPECT_EQ(traffic.bytes_sent, by_kernel());
    EXPECT_EQ(traffic.bytes_sent, traffic.bytes_received);
  });
}

TEST(WideLinks, IpVersion6WorksAsWell) {
  std::string addr = free_address();
  addr = "[::1]" + addr.substr(addr.rfind(':'));
  try {
    listen_at(resolve("[::1]:0", "test").front());
  } catch (const std::exception& error) {
    GTEST_SKIP() << "no loopback of IP version 6: " << error.what();
  }
  const auto play = [&](int rank) {
    Config config = config_of(rank, 2, addr);
    config.tcp_width = 3;
    const Links links = connect_tcp(config, 0, make_tcp_exchange(config, 0));
    exchange_in_turn(*links.transport, 3, 500'000);
  };
  for (const auto& error : run_threads({[&] { play(0); }, [&] { play(1); }})) EXPECT_EQ(message_of(error), "");
}

TEST(WideLinks, RanksWithDifferentWidthsAreRefused) {
  const std::string addr = free_address();
  const auto connect = [&](int rank) {
    Config config = config_of(rank, 2, addr);
    config.tcp_width = rank == 0 ? 1 : 4;
    connect_tcp(config, 0, make_tcp_exchange(config, 0));
  };
  for (const auto& error : run_threads({[&] { connect(0); }, [&] { connect(1); }})) {
    EXPECT_EQ(message_of(error), "HORO_TCP_WIDTH must be equal on all ranks: it is 1 on rank 0, 4 on rank 1");
  }
}

}  // namespace
}  // namespace horo::test
