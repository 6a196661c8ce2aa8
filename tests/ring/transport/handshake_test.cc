// The handshake without sockets: peers with the key are accepted, and no bytes of another peer are.

#include "ring/transport/handshake.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "horo/base/error.h"

namespace horo {
namespace {

using Bytes = std::vector<std::byte>;

Identity identity(int rank, std::uint8_t key = 1) {
  Identity self;
  self.job = hash64("test");
  self.epoch = 3;
  self.incarnation = 10 + static_cast<std::uint32_t>(rank);
  self.rank = rank;
  self.size = 4;
  self.key.fill(static_cast<std::byte>(key));
  return self;
}

// Feeds the bytes of one side to the other, in the sizes that it requests; `tamper` may change each message.
using Tamper = std::function<void(int message, Bytes& bytes)>;

void deliver(Handshake& to, const Bytes& bytes) {
  std::span<const std::byte> left(bytes);
  while (!left.empty()) {
    const std::size_t take = to.wants();
    if (take == 0 || take > left.size()) throw ProtocolError("the sizes do not fit");
    to.feed(left.first(take));
    left = left.subspan(take);
  }
}

void run_handshake(
    Handshake& dialer, Handshake& acceptor, const Tamper& tamper = [](int, Bytes&) {}) {
  for (int message = 0; message < 4; ++message) {
    Bytes bytes = (message % 2 == 1 ? acceptor : dialer).take_output();
    tamper(message, bytes);
    deliver(message % 2 == 1 ? dialer : acceptor, bytes);
    if (acceptor.is_proved()) acceptor.admit();
  }
}

TEST(Handshake, BothSidesLearnTheIdentityOfThePeer) {
  auto dialer = Handshake::dialing(identity(2), 0, Purpose::kControl);
  auto acceptor = Handshake::accepting(identity(0));
  run_handshake(dialer, acceptor);
  ASSERT_TRUE(dialer.is_done() && acceptor.is_done());
  EXPECT_EQ(acceptor.peer(), 2);
  EXPECT_EQ(acceptor.peer_incarnation(), 12u);
  EXPECT_EQ(acceptor.purpose(), Purpose::kControl);
  EXPECT_EQ(dialer.peer(), 0);
  EXPECT_EQ(dialer.peer_incarnation(), 10u);
  EXPECT_EQ(dialer.wants() + acceptor.wants(), 0u);
}

TEST(Handshake, TheDialerIsConnectedWhenItIsAdmitted) {
  auto dialer = Handshake::dialing(identity(2), 0, Purpose::kControl);
  auto acceptor = Handshake::accepting(identity(0));
  deliver(acceptor, dialer.take_output());
  deliver(dialer, acceptor.take_output());
  EXPECT_TRUE(dialer.awaits_admission());
  deliver(acceptor, dialer.take_output());
  EXPECT_TRUE(acceptor.is_proved());
  EXPECT_TRUE(acceptor.take_output().empty());
  EXPECT_FALSE(dialer.is_done() || acceptor.is_done());
  acceptor.admit();
  deliver(dialer, acceptor.take_output());
  EXPECT_TRUE(dialer.is_done() && acceptor.is_done());
}

TEST(Handshake, OnlyTheKeyMakesAFirstHelloACallAndAnotherKeyIsToldTheDialer) {
  for (const int key : {1, 2}) {
    auto dialer = Handshake::dialing(identity(2, static_cast<std::uint8_t>(key)), 0, Purpose::kControl);
    auto acceptor = Handshake::accepting(identity(0));
    EXPECT_FALSE(acceptor.is_called());
    deliver(acceptor, dialer.take_output());
    EXPECT_EQ(acceptor.is_called(), key == 1);
    const Bytes answer = acceptor.take_output();
    if (key == 2) {
      EXPECT_THROW(deliver(dialer, answer), ProtocolError);
    }
  }
}

void expect_refused(const Identity& dials, const Identity& accepts, int to = 0) {
  auto dialer = Handshake::dialing(dials, to, Purpose::kData);
  auto acceptor = Handshake::accepting(accepts);
  EXPECT_THROW(run_handshake(dialer, acceptor), ProtocolError);
  EXPECT_FALSE(acceptor.is_proved() || acceptor.is_done());
}

TEST(Handshake, AnotherKeyJobEpochSizeOrRankIsRefused) {
  expect_refused(identity(1, 1), identity(0, 2));
  Identity other = identity(1);
  other.job = hash64("other");
  expect_refused(other, identity(0));
  other = identity(1);
  other.epoch = 4;
  expect_refused(other, identity(0));
  other = identity(1);
  other.size = 5;
  expect_refused(other, identity(0));
  other = identity(1);
  other.rank = 4;
  expect_refused(other, identity(0));
  expect_refused(identity(1), identity(0), /*to=*/3);
  expect_refused(identity(1), identity(1), /*to=*/1);
}

TEST(Handshake, EveryFlippedBitOfEveryMessageIsDetected) {
  for (int message = 0; message < 4; ++message) {
    for (std::size_t bit = 0; bit < 8 * (kFrameBytes + 96); ++bit) {
      auto dialer = Handshake::dialing(identity(2), 0, Purpose::kData);
      auto acceptor = Handshake::accepting(identity(0));
      bool flipped = false;
      const auto flip = [&](int number, Bytes& bytes) {
        if (number != message || bit / 8 >= bytes.size()) return;
        bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
        flipped = true;
      };
      try {
        run_handshake(dialer, acceptor, flip);
      } catch (const ProtocolError&) {
      }
      EXPECT_EQ(dialer.is_done(), !flipped) << "message " << message << " bit " << bit;
      EXPECT_EQ(acceptor.is_done(), !flipped || message == 3) << "message " << message << " bit " << bit;
    }
  }
}

// A header carries a plain checksum, which any peer can compute, so changed headers are encoded again here.
TEST(Handshake, ForgedHeadersWithValidChecksumsAreDetected) {
  const std::function<void(Frame&)> forgeries[] = {
      [](Frame& f) { f.from = 3; }, [](Frame& f) { f.incarnation ^= 1; }, [](Frame& f) { f.epoch ^= 1; },
      [](Frame& f) { f.job ^= 1; }, [](Frame& f) { f.channel = 7; },      [](Frame& f) { f.kind = FrameKind::kData; }};
  for (int message = 0; message < 4; ++message) {
    for (const auto& forge : forgeries) {
      auto dialer = Handshake::dialing(identity(2), 0, Purpose::kData);
      auto acceptor = Handshake::accepting(identity(0));
      const auto tamper = [&](int number, Bytes& bytes) {
        if (number != message) return;
        Frame frame = decode_frame(std::span(bytes).first<kFrameBytes>(), kMaxHelloBytes);
        forge(frame);
        const FrameBytes header = encode(frame);
        std::copy(header.begin(), header.end(), bytes.begin());
      };
      try {
        run_handshake(dialer, acceptor, tamper);
      } catch (const ProtocolError&) {
      }
      EXPECT_FALSE(dialer.is_done()) << message;
      EXPECT_EQ(acceptor.is_done(), message == 3) << message;
    }
  }
}

TEST(Handshake, ProofsCannotBeReflected) {
  // An attacker without the key sends a dialer its own messages back.
  auto dialer = Handshake::dialing(identity(2), 0, Purpose::kData);
  const Bytes hello = dialer.take_output();
  EXPECT_THROW(deliver(dialer, hello), ProtocolError);
}

TEST(Handshake, ARecordedHandshakeIsNotAcceptedAgain) {
  auto dialer = Handshake::dialing(identity(2), 0, Purpose::kData);
  auto acceptor = Handshake::accepting(identity(0));
  Bytes first, third;
  run_handshake(dialer, acceptor, [&](int message, Bytes& bytes) {
    if (message == 0) first = bytes;
    if (message == 2) third = bytes;
  });
  auto again = Handshake::accepting(identity(0));
  deliver(again, first);
  EXPECT_THROW(deliver(again, third), ProtocolError);
  EXPECT_FALSE(again.is_proved());
}

TEST(Handshake, RandomBytesAreNeverAcceptedAndRequestLittleMemory) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 3000; ++round) {
    auto acceptor = Handshake::accepting(identity(0));
    auto dialer = Handshake::dialing(identity(2), 0, Purpose::kData);
    Bytes start = round % 2 == 0 ? dialer.take_output() : Bytes();
    try {
      if (!start.empty()) deliver(acceptor, start);
      for (int message = 0; message < 4; ++message) {
        ASSERT_LE(acceptor.wants(), std::max(kMaxHelloBytes, kFrameBytes));
        Bytes garbage(acceptor.wants());
        for (auto& byte : garbage) byte = static_cast<std::byte>(random());
        if (round % 4 < 2 && garbage.size() == kFrameBytes) {
          Frame frame = identity(2).frame(FrameKind::kHello);
          frame.length = random() % 300;
          const FrameBytes header = encode(frame);
          std::copy(header.begin(), header.end(), garbage.begin());
        }
        acceptor.feed(garbage);
      }
    } catch (const ProtocolError&) {
    }
    EXPECT_FALSE(acceptor.is_proved() || acceptor.is_done());
  }
}

}  // namespace
}  // namespace horo
