// The transfer of a state to ranks that have joined.
#include "horo/state/transfer.h"

#include <gmock/gmock.h>

#include <array>
#include <numeric>

#include "horo/state/pieces.h"
#include "tests/horo/worlds.h"

namespace horo {
namespace {

using testing::Each;
using testing::HasSubstr;

// Buffers of these sizes whose bytes depend on the seed.
class Buffers {
 public:
  Buffers(const std::vector<std::size_t>& sizes, unsigned seed) {
    for (const std::size_t size : sizes) {
      std::vector<std::byte>& bytes = memory_.emplace_back(size);
      for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(seed == 0 ? 0 : i * 7 + seed + size);
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      named_.push_back(
          {"b" + std::to_string(i), "uint8[" + std::to_string(sizes[i]) + "]", memory_[i].data(), memory_[i].size()});
    }
  }
  std::vector<NamedBuffer>& named() { return named_; }
  bool operator==(const Buffers& other) const { return memory_ == other.memory_; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<NamedBuffer> named_;
};

const std::vector<std::size_t> kBufferBytes{5, 0, 3 << 20, 1, 70'000, kPieceBytes, 17, 2 * kPieceBytes + 1};

class Transfer : public testing::TestWithParam<bool> {};  // whether memory is read
INSTANTIATE_TEST_SUITE_P(Ways, Transfer, testing::Bool(),
                         [](const auto& info) { return info.param ? "Read" : "ByMessages"; });

TEST_P(Transfer, RanksThatJoinGetTheBytesOfTheOthers) {
  const auto errors = run_world(4, [](Session& session) {
    const int rank = session.topology().rank;
    const bool has_state = rank == 0 || rank == 2;
    Buffers mine(kBufferBytes, has_state ? 3 : 0);
    const Transferred moved = transfer_state(session, mine.named(), has_state, GetParam());
    EXPECT_TRUE(moved.is_complete);
    EXPECT_TRUE(mine == Buffers(kBufferBytes, 3));
    EXPECT_EQ(moved.by_messages, !has_state && !GetParam());
    if (has_state) return;
    EXPECT_THAT(text_of(moved), HasSubstr(" MiB from ranks 0, 2 in "));
  });
  EXPECT_THAT(errors, Each(""));
}

// As statistics of BatchNorm: the donors have different values, and all of those of one donor are given.
TEST_P(Transfer, BuffersThatDifferComeFromTheFirstDonorAlone) {
  const auto errors = run_world(4, [](Session& session) {
    const int rank = session.topology().rank;
    const bool has_state = rank > 0;
    Buffers mine(kBufferBytes, has_state ? static_cast<unsigned>(rank) : 0);
    Buffers same(kBufferBytes, has_state ? 9 : 0);
    std::vector<NamedBuffer> all;
    for (std::size_t i = 0; i < kBufferBytes.size(); ++i) {
      all.push_back(same.named()[i]);
      all.push_back(mine.named()[i]);
      all.back().name += " of each";
      all.back().is_of_first = true;
    }
    EXPECT_TRUE(transfer_state(session, all, has_state, GetParam()).is_complete);
    EXPECT_TRUE(same == Buffers(kBufferBytes, 9));
    EXPECT_TRUE(mine == Buffers(kBufferBytes, has_state ? static_cast<unsigned>(rank) : 1));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(Transfer, OneRankGivesManySmallBuffersToAnother) {
  const std::vector<std::size_t> sizes(1'000, 40);
  const auto errors = run_world(2, [&](Session& session) {
    const bool has_state = session.topology().rank == 1;
    Buffers mine(sizes, has_state ? 9 : 0);
    EXPECT_TRUE(transfer_state(session, mine.named(), has_state, GetParam()).is_complete);
    EXPECT_TRUE(mine == Buffers(sizes, 9));
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(TransferOf, NothingIsCompleteWhereAllHaveTheState) {
  const auto errors = run_world(2, [](Session& session) {
    Buffers mine({8}, 1);
    EXPECT_TRUE(transfer_state(session, mine.named(), true).is_complete);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(TransferOf, AStateThatNoRankHasIsNotComplete) {
  const auto errors = run_world(2, [](Session& session) {
    Buffers mine({8}, 1);
    EXPECT_FALSE(transfer_state(session, mine.named(), false).is_complete);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(TransferOf, ARankWithOtherBuffersIsRefusedWithTheFirstDifferenceAndNothingIsWritten) {
  const auto errors = run_world(2, [](Session& session) {
    if (session.topology().rank == 0) {
      Buffers mine({8, 8}, 1);
      transfer_state(session, mine.named(), true);
      return;
    }
    Buffers mine({8, 9}, 0);
    EXPECT_THAT([&] { transfer_state(session, mine.named(), false); },
                testing::ThrowsMessage<std::invalid_argument>(
                    HasSubstr("b1 is uint8[9] (9 bytes) here and uint8[8] (8 bytes) there")));
    EXPECT_TRUE(mine == Buffers({8, 9}, 0));
  });
  EXPECT_EQ(errors[1], "");
}

TEST(TransferOf, DifferencesAreNamed) {
  Buffers one({1, 2}, 1), other({1, 2, 3}, 1);
  EXPECT_EQ(difference_of(one.named(), table_of(one.named())), "");
  EXPECT_THAT(difference_of(one.named(), table_of(other.named())), HasSubstr("b2 is missing here"));
  EXPECT_THAT(difference_of(other.named(), table_of(one.named())),
              HasSubstr("b2 is uint8[3] (3 bytes) here and missing"));
  std::swap(one.named()[0], one.named()[1]);
  EXPECT_EQ(difference_of(one.named(), table_of(Buffers({1, 2}, 1).named())), "the buffers have another order");
}

TEST(StatePieces, CoverEachByteOnce) {
  Buffers buffers(kBufferBytes, 1);
  std::vector<std::size_t> covered(kBufferBytes.size());
  for (const StatePiece& piece : pieces_of(buffers.named())) {
    std::size_t bytes = 0;
    for (const StatePart& part : piece) {
      EXPECT_EQ(part.offset, covered[part.buffer]);
      covered[part.buffer] += part.bytes;
      bytes += part.bytes;
    }
    EXPECT_LE(bytes, kPieceBytes);
  }
  EXPECT_EQ(covered, kBufferBytes);
}

}  // namespace
}  // namespace horo
