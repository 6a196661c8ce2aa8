// Slices: every element is in one slice, and the messages of long tensors fill packets.

#include "ring/algorithms/slices.h"

#include <gtest/gtest.h>

#include "horo/base/wire.h"

namespace horo::test {
namespace {

constexpr std::size_t kPacketBytes = 65483;  // that a loopback packet carries over IPv4
constexpr std::size_t kSegmentBytes = 256 << 10;

Schedule schedule_of(int chunks) {
  Schedule schedule;
  schedule.size = schedule.chunks = chunks;
  return schedule;
}

Collective reduction_of(std::size_t elements) {
  Collective c;
  c.counts = {elements};
  return c;
}

// Expects that the chunks of all slices are contiguous and cover the tensor.
void expect_whole(const Collective& c, int chunks, Cut cut) {
  const Schedule schedule = schedule_of(chunks);
  const Slices slices(c, schedule, cut);
  std::size_t end = 0;
  for (std::size_t slice = 0; slice < slices.count(); ++slice) {
    EXPECT_EQ(slices.whole(slice).begin, end);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      ASSERT_EQ(slices.begin(slice, Schedule::kIn, chunk), end) << "slice " << slice << ", chunk " << chunk;
      ASSERT_LE(slices.elements(slice, chunk), slices.most_elements(chunk));
      ASSERT_LE(slices.elements(slice, chunk) * 4, std::max<std::size_t>(cut.most, 4));
      end += slices.elements(slice, chunk);
    }
  }
  EXPECT_EQ(end, c.counts[0]);
}

TEST(Slices, CoverEveryElementOnce) {
  for (const int chunks : {1, 2, 3, 8}) {
    for (const std::size_t elements :
         {0UL, 1UL, 7UL, 65'440UL, 65'536UL, 131'072UL, 147'000UL, 1'000'003UL, 9UL << 20}) {
      for (const std::size_t bytes : {4UL, 1'000UL, 65'536UL, kSegmentBytes, 1UL << 20}) {
        if (elements / bytes > 1'000'000) continue;
        expect_whole(reduction_of(elements), chunks, cut_by_packets(bytes));
        expect_whole(reduction_of(elements), chunks, {bytes, bytes});
      }
    }
  }
}

TEST(Slices, OfLongTensorsFillPacketsExceptForTheLast) {
  for (const std::size_t bytes : {1UL << 20, 4UL << 20, 16UL << 20, 100'000'000UL}) {
    const Collective c = reduction_of(bytes / 4);
    const Schedule schedule = schedule_of(2);
    const Slices slices(c, schedule, cut_by_packets(kSegmentBytes));
    for (std::size_t slice = 0; slice + 1 < slices.count(); ++slice) {
      const std::size_t frame = slices.elements(slice, 0) * 4 + kFrameBytes + kChecksumBytes;
      EXPECT_LE(frame, 4 * kPacketBytes) << bytes;
      EXPECT_GT(frame, 4 * kPacketBytes - 4'000) << bytes;
    }
  }
  EXPECT_EQ(Slices(reduction_of(1 << 18), schedule_of(2), cut_by_packets(kSegmentBytes)).count(), 2U);
}

// A remainder of a few bytes is part of the slice before it.
TEST(Slices, AShortRemainderIsNotASlice) {
  const Cut cut = cut_by_packets(kSegmentBytes);
  EXPECT_EQ(Slices(reduction_of(cut.most / 4), schedule_of(1), cut).count(), 1U);
  EXPECT_EQ(Slices(reduction_of(cut.most / 4 + 1), schedule_of(1), cut).count(), 2U);
  EXPECT_EQ(Slices(reduction_of((cut.usual + cut.most) / 4), schedule_of(1), cut).count(), 2U);
}

TEST(Slices, CoverPartsOfUnequalLengths) {
  Collective c;
  c.kind = CollectiveKind::kAllGather;
  c.counts = {200'000, 0, 70'000, 1};
  const Schedule schedule = schedule_of(4);
  for (const Cut cut : {cut_by_packets(kSegmentBytes), Cut{100'000, 100'000}}) {
    const Slices slices(c, schedule, cut);
    std::size_t begin = 0;
    for (int chunk = 0; chunk < 4; ++chunk) {
      std::size_t end = begin;
      for (std::size_t slice = 0; slice < slices.count(); ++slice) {
        EXPECT_EQ(slices.begin(slice, Schedule::kOut, chunk), end);
        end += slices.elements(slice, chunk);
        EXPECT_LE(slices.elements(slice, chunk), slices.most_elements(chunk));
      }
      begin += c.counts[static_cast<std::size_t>(chunk)];
      EXPECT_EQ(end, begin);
    }
  }
}

TEST(Slices, ShortSegmentsHaveTheRequestedLength) {
  for (const std::size_t bytes : {64UL, 1'000UL, 65'000UL}) {
    EXPECT_EQ(cut_by_packets(bytes).usual, bytes);
    EXPECT_EQ(cut_by_packets(bytes).most, bytes);
  }
}

}  // namespace
}  // namespace horo::test
