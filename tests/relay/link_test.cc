#include "tools/relay/link.h"

#include <gtest/gtest.h>

#include "tests/relay/trains.h"

namespace horo::tools::relay {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::kHeaders;
using testing::kSegment;
using testing::train;
using testing::word;

constexpr TimePoint kStart{std::chrono::hours(1)};

struct Arrival {
  Duration time;
  Packet packet;
};

// All packets that arrive, with their arrival times.
std::vector<Arrival> all_of(Link& link) {
  std::vector<Arrival> all;
  while (const std::optional<TimePoint> next = link.next()) all.push_back({*next - kStart, *link.pop(*next)});
  return all;
}

// A packet with its number in IP's identification field.
Packet numbered(unsigned number, std::size_t payload = 10) {
  Packet packet = train(payload);
  testing::put(packet, 4, {number >> 8, number & 0xff});
  return packet;
}

std::vector<unsigned> numbers_of(const std::vector<Arrival>& arrivals) {
  std::vector<unsigned> numbers;
  for (const Arrival& one : arrivals) numbers.push_back(word(one.packet, 4));
  return numbers;
}

std::vector<unsigned> first_numbers(unsigned count) {
  std::vector<unsigned> numbers(count);
  for (unsigned i = 0; i < count; ++i) numbers[i] = i;
  return numbers;
}

// The segments of `count` that arrive.
std::vector<unsigned> survivors(Link& link, unsigned count) {
  for (unsigned i = 0; i < count; ++i) link.push(numbered(i), kStart);
  return numbers_of(all_of(link));
}

Link link_with(const LinkSettings& settings, std::uint64_t seed = 1) {
  Link link(seed);
  link.set(settings);
  return link;
}

TEST(RelayLink, PacketsTakeAtLeastTheDelay) {
  Link link = link_with({.delay = milliseconds(10)});
  link.push(numbered(7), kStart);
  EXPECT_FALSE(link.pop(kStart + milliseconds(10) - Duration(1)));
  EXPECT_TRUE(link.pop(kStart + milliseconds(10)));
  EXPECT_FALSE(link.next());
}

TEST(RelayLink, TheRateIsThatOfAnEthernet) {
  Link link = link_with({.bits_per_second = 1e9});
  for (int i = 0; i < 10; ++i) link.push(train(20 * kSegment), kStart);
  const double wire_us = 8.0 * 200 * (kSegment + kHeaders + 38) / 1000;
  EXPECT_NEAR(std::chrono::duration<double>(all_of(link).back().time).count() * 1e6, wire_us, 0.1);
}

TEST(RelayLink, AnIdleLinkAccumulatesNoCredit) {
  Link link = link_with({.bits_per_second = 1e6});
  link.push(numbered(0), kStart);
  link.push(numbered(1), kStart + milliseconds(100));
  const std::vector<Arrival> arrivals = all_of(link);
  EXPECT_EQ(arrivals[0].time, arrivals[1].time - milliseconds(100));
}

TEST(RelayLink, JitterKeepsTheOrderAndItsLimits) {
  Link link = link_with({.delay = milliseconds(5), .jitter = milliseconds(2)});
  for (unsigned i = 0; i < 500; ++i) link.push(numbered(i), kStart + microseconds(10) * i);
  const std::vector<Arrival> arrivals = all_of(link);
  EXPECT_EQ(numbers_of(arrivals), first_numbers(500));
  Duration least = Duration::max(), most{};
  for (unsigned i = 0; i < 500; ++i) {
    least = std::min(least, arrivals[i].time - microseconds(10) * i);
    most = std::max(most, arrivals[i].time - microseconds(10) * i);
  }
  EXPECT_GE(least, milliseconds(5));
  EXPECT_LT(most, milliseconds(7));
  EXPECT_GT(most - least, milliseconds(1));
}

TEST(RelayLink, AShorterDelayKeepsTheOrder) {
  Link link = link_with({.delay = milliseconds(10)});
  link.push(numbered(0), kStart);
  link.set({.delay = milliseconds(1)});
  link.push(numbered(1), kStart);
  EXPECT_EQ(numbers_of(all_of(link)), first_numbers(2));
}

TEST(RelayLink, LossHasItsShareAndIsCounted) {
  Link link = link_with({.loss = 0.1});
  const std::size_t left = survivors(link, 10'000).size();
  EXPECT_NEAR(static_cast<double>(left), 9000, 150);
  EXPECT_EQ(link.counters().lost, 10'000 - left);
}

TEST(RelayLink, TheSameSeedGivesTheNthSegmentTheSameFate) {
  Link one = link_with({.loss = 0.1}), same = link_with({.loss = 0.1}), other = link_with({.loss = 0.1}, 2);
  const std::vector<unsigned> left = survivors(one, 1000);
  EXPECT_EQ(survivors(same, 1000), left);
  EXPECT_NE(survivors(other, 1000), left);
}

TEST(RelayLink, AFateDoesNotDependOnOtherSettings) {
  Link one = link_with({.loss = 0.1});
  Link other = link_with({.jitter = milliseconds(1), .loss = 0.1, .corrupt = 0.5, .bits_per_second = 1e9});
  EXPECT_EQ(survivors(one, 1000), survivors(other, 1000));
}

TEST(RelayLink, SegmentsOfATrainHaveTheFatesOfSinglePackets) {
  Link whole = link_with({.loss = 0.3}), apart = link_with({.loss = 0.3});
  whole.push(train(50 * kSegment), kStart);
  std::size_t segments = 0;
  for (const Arrival& one : all_of(whole)) segments += segments_of(one.packet);
  EXPECT_EQ(segments, survivors(apart, 50).size());
  EXPECT_GT(segments, 20u);
  EXPECT_LT(segments, 50u);
}

TEST(RelayLink, LateSegmentsAreOvertakenAndNoneIsLost) {
  Link link = link_with({.reorder = 0.05});
  for (unsigned i = 0; i < 1000; ++i) link.push(numbered(i), kStart + microseconds(10) * i);
  std::vector<unsigned> numbers = numbers_of(all_of(link));
  EXPECT_FALSE(std::is_sorted(numbers.begin(), numbers.end()));
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(numbers, first_numbers(1000));
  EXPECT_NEAR(static_cast<double>(link.counters().late), 50, 20);
}

TEST(RelayLink, CorruptedSegmentsArriveChanged) {
  Link link = link_with({.corrupt = 0.2});
  for (unsigned i = 0; i < 1000; ++i) link.push(numbered(0), kStart);
  std::size_t changed = 0;
  for (const Arrival& one : all_of(link)) {
    changed +=
        std::equal(one.packet.bytes.begin() + kHeaders, one.packet.bytes.end(), numbered(0).bytes.begin() + kHeaders)
            ? 0
            : 1;
  }
  EXPECT_EQ(changed, link.counters().corrupted);
  EXPECT_NEAR(static_cast<double>(changed), 200, 50);
}

TEST(RelayLink, ACutLosesPacketsInFlightAndNewOnes) {
  Link link = link_with({.delay = milliseconds(10)});
  link.push(train(3 * kSegment), kStart);
  link.set({.passage = Passage::kCut});
  link.push(numbered(1), kStart);
  EXPECT_FALSE(link.next());
  EXPECT_EQ(link.counters().cut, 4u);
  link.set({});
  link.push(numbered(2), kStart);
  EXPECT_EQ(numbers_of(all_of(link)), std::vector<unsigned>{2});
}

TEST(RelayLink, AStallLosesNothing) {
  Link link = link_with({.passage = Passage::kStalled});
  for (unsigned i = 0; i < 10; ++i) link.push(numbered(i), kStart);
  EXPECT_FALSE(link.next());
  EXPECT_FALSE(link.pop(kStart + std::chrono::hours(1)));
  link.set({});
  EXPECT_EQ(numbers_of(all_of(link)), first_numbers(10));
}

TEST(RelayLink, AFullQueueDropsNewPackets) {
  Link link = link_with({.bits_per_second = 1e6, .queue_bytes = 3 * (kHeaders + 10 + 38)});
  EXPECT_EQ(survivors(link, 10), first_numbers(4)) << "one is being sent, three wait";
  EXPECT_EQ(link.counters().dropped, 6u);
}

}  // namespace
}  // namespace horo::tools::relay
