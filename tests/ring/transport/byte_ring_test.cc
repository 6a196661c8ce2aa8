// The ring in shared memory: what the writer wrote is what the reader reads, and a peer that lies gets nowhere.

#include "ring/transport/byte_ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

constexpr std::size_t kChunkBytes = 64;

// Both ends in one place, as no two ranks have them, so that TSan sees what orders the bytes.
struct Ring {
  explicit Ring(std::size_t bytes) : memory(bytes) {}
  RingWords words{};
  std::vector<std::byte> memory;
  RingWriter writer{words, memory, kChunkBytes};
  RingReader reader{words, memory, kChunkBytes};
};

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> all(bytes);
  for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>(i * 31 + i / 256);
  return all;
}

TEST(ByteRing, BytesComeInOrderThroughARingOfAnySize) {
  for (const std::size_t ring_bytes : {1ul, 7ul, 64ul, 200ul, 1000ul}) {
    Ring ring(ring_bytes);
    const std::vector<std::byte> out = pattern(5'000);
    std::vector<std::byte> in(out.size());
    std::size_t sent = 0, got = 0;
    while (got < in.size()) {
      sent += ring.writer.write(std::span(out).subspan(sent, std::min<std::size_t>(out.size() - sent, 333)));
      ring.writer.pass_on();
      got += ring.reader.read(std::span(in).subspan(got));
      ring.reader.pass_on();
    }
    EXPECT_EQ(in, out) << ring_bytes;
  }
}

TEST(ByteRing, TwoThreadsPassBytesOn) {
  Ring ring(1'000);
  const std::vector<std::byte> out = pattern(1 << 20);
  std::vector<std::byte> in(out.size());
  const TimePoint until = soon();
  std::jthread writer([&] {
    for (std::size_t sent = 0; sent < out.size() && Clock::now() < until; ring.writer.pass_on()) {
      sent += ring.writer.write(std::span(out).subspan(sent));
    }
  });
  for (std::size_t got = 0; got < in.size() && Clock::now() < until; ring.reader.pass_on()) {
    got += ring.reader.read(std::span(in).subspan(got));
  }
  writer.join();
  EXPECT_TRUE(in == out);
}

TEST(ByteRing, AFullRingTakesNothingMore) {
  Ring ring(100);
  const auto out = pattern(300);
  EXPECT_EQ(ring.writer.write(out), 100u);
  EXPECT_EQ(ring.writer.write(out), 0u);
}

TEST(ByteRing, WhoSleepsIsToBeWokenOnce) {
  Ring ring(100);
  const auto out = pattern(10);
  EXPECT_FALSE(ring.reader.prepare_sleep());
  ring.writer.write(out);
  EXPECT_TRUE(ring.writer.pass_on());
  ring.writer.write(out);
  EXPECT_FALSE(ring.writer.pass_on());
  EXPECT_TRUE(ring.reader.prepare_sleep());
}

TEST(ByteRing, AWriterIsWokenWhenHalfOfItsRingIsFree) {
  Ring ring(100);
  const auto out = pattern(100);
  ring.writer.write(out);
  ring.writer.pass_on();
  EXPECT_FALSE(ring.writer.prepare_sleep());
  std::vector<std::byte> in(40);
  ring.reader.read(in);
  EXPECT_FALSE(ring.reader.pass_on());
  ring.reader.read(in);
  EXPECT_TRUE(ring.reader.pass_on());
}

TEST(ByteRing, AReaderDoesNotBelieveAWriterWhoClaimsMoreThanFits) {
  for (const std::uint64_t lie : {101ul, 1ul << 40, ~0ul}) {
    Ring ring(100);
    ring.words.written.store(lie);
    std::vector<std::byte> in(1'000);
    EXPECT_EQ(ring.reader.read(in), 0u);
    EXPECT_TRUE(ring.reader.is_damaged());
  }
}

TEST(ByteRing, AReaderDoesNotBelieveAWriterWhoGoesBack) {
  Ring ring(100);
  std::vector<std::byte> in(10);
  ring.words.written.store(10);
  EXPECT_EQ(ring.reader.read(in), 10u);
  ring.words.written.store(9);
  EXPECT_EQ(ring.reader.read(in), 0u);
  EXPECT_TRUE(ring.reader.is_damaged());
}

TEST(ByteRing, AWriterDoesNotBelieveAReaderWhoTookWhatWasNotThere) {
  for (const std::uint64_t lie : {101ul, 200ul, ~0ul}) {
    Ring ring(100);
    const auto out = pattern(100);
    ring.writer.write(out);
    ring.writer.pass_on();
    ring.words.taken.store(lie);
    EXPECT_EQ(ring.writer.write(out), 0u);
    EXPECT_TRUE(ring.writer.is_damaged());
  }
}

}  // namespace
}  // namespace horo::test
