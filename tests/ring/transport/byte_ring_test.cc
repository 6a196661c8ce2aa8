// The ring in shared memory: bytes arrive in order, and invalid positions of a peer are detected.

#include "ring/transport/byte_ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

constexpr std::size_t kChunkBytes = 64;

// Both ends in one process, so that TSan checks the memory order.
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

TEST(ByteRing, BytesArriveInOrderThroughARingOfAnySize) {
  for (const std::size_t ring_bytes : {1ul, 7ul, 64ul, 200ul, 1000ul}) {
    Ring ring(ring_bytes);
    const std::vector<std::byte> out = pattern(5'000);
    std::vector<std::byte> in(out.size());
    std::size_t sent = 0, got = 0;
    while (got < in.size()) {
      sent += ring.writer.write(std::span(out).subspan(sent, std::min<std::size_t>(out.size() - sent, 333)));
      ring.writer.publish();
      got += ring.reader.read(std::span(in).subspan(got));
      ring.reader.publish();
    }
    EXPECT_EQ(in, out) << ring_bytes;
  }
}

TEST(ByteRing, BytesArriveInOrderBetweenTwoThreads) {
  Ring ring(1'000);
  const std::vector<std::byte> out = pattern(1 << 20);
  std::vector<std::byte> in(out.size());
  const TimePoint until = soon();
  std::jthread writer([&] {
    for (std::size_t sent = 0; sent < out.size() && Clock::now() < until; ring.writer.publish()) {
      sent += ring.writer.write(std::span(out).subspan(sent));
    }
  });
  for (std::size_t got = 0; got < in.size() && Clock::now() < until; ring.reader.publish()) {
    got += ring.reader.read(std::span(in).subspan(got));
  }
  writer.join();
  EXPECT_TRUE(in == out);
}

TEST(ByteRing, AFullRingTakesNoMoreBytes) {
  Ring ring(100);
  const auto out = pattern(300);
  EXPECT_EQ(ring.writer.write(out), 100u);
  EXPECT_EQ(ring.writer.write(out), 0u);
}

TEST(ByteRing, ASleeperIsWokenOnce) {
  Ring ring(100);
  const auto out = pattern(10);
  EXPECT_FALSE(ring.reader.prepare_sleep());
  ring.writer.write(out);
  EXPECT_TRUE(ring.writer.publish());
  ring.writer.write(out);
  EXPECT_FALSE(ring.writer.publish());
  EXPECT_TRUE(ring.reader.prepare_sleep());
}

TEST(ByteRing, AWriterIsWokenWhenHalfOfItsRingIsFree) {
  Ring ring(100);
  const auto out = pattern(100);
  ring.writer.write(out);
  ring.writer.publish();
  EXPECT_FALSE(ring.writer.prepare_sleep());
  std::vector<std::byte> in(40);
  ring.reader.read(in);
  EXPECT_FALSE(ring.reader.publish());
  ring.reader.read(in);
  EXPECT_TRUE(ring.reader.publish());
}

TEST(ByteRing, AReaderDetectsAWrittenPositionBeyondTheRing) {
  for (const std::uint64_t invalid : {101ul, 1ul << 40, ~0ul}) {
    Ring ring(100);
    ring.words.written.store(invalid);
    std::vector<std::byte> in(1'000);
    EXPECT_EQ(ring.reader.read(in), 0u);
    EXPECT_TRUE(ring.reader.is_damaged());
  }
}

TEST(ByteRing, AReaderDetectsAWrittenPositionThatDecreases) {
  Ring ring(100);
  std::vector<std::byte> in(10);
  ring.words.written.store(10);
  EXPECT_EQ(ring.reader.read(in), 10u);
  ring.words.written.store(9);
  EXPECT_EQ(ring.reader.read(in), 0u);
  EXPECT_TRUE(ring.reader.is_damaged());
}

TEST(ByteRing, AWriterDetectsATakenPositionBeyondTheWritten) {
  for (const std::uint64_t invalid : {101ul, 200ul, ~0ul}) {
    Ring ring(100);
    const auto out = pattern(100);
    ring.writer.write(out);
    ring.writer.publish();
    ring.words.taken.store(invalid);
    EXPECT_EQ(ring.writer.write(out), 0u);
    EXPECT_TRUE(ring.writer.is_damaged());
  }
}

}  // namespace
}  // namespace horo::test
