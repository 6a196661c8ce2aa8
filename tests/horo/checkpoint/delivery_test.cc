// Bytes of a checkpoint reach the memory of the caller: straight from the file, or by way of a buffer.
#include <gmock/gmock.h>

#include <cstring>

#include "tests/horo/checkpoint/states.h"
#include "tests/horo/worlds.h"

namespace horo::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Bytes = std::vector<std::byte>;

// Several MiB, at places that are no multiple of anything, one of them tied.
std::vector<StateTensor> long_state() {
  return {{"odd", "uint8", {77}},
          {"long", "float32", {1100, 1001}},
          {"rows", "float32", {3000, 500}, TensorKind::kSharded},
          {"tied", "float32", {1100, 1001}, TensorKind::kReplicated, 1},
          {"last", "int64", {}}};
}

class Deliveries : public testing::Test {
 protected:
  void SetUp() override { save_alone(folder_ / "step-1", saved_); }

  const TemporaryFolder folder_{true};
  const State saved_{long_state(), 5};
};

TEST_F(Deliveries, ATiedTensorIsReadIntoTwoMemories) {
  State into(long_state(), 6);
  Bytes second(std::size_t{1100} * 1001 * 4);
  into.tensors()[3].alias_of = -1;
  into.tensors()[3].data = second.data();
  Checkpoint checkpoint(folder_ / "step-1");
  load(checkpoint, nullptr, into.tensors());
  EXPECT_TRUE(into == saved_);
  EXPECT_EQ(std::memcmp(second.data(), saved_.tensors()[1].data, second.size()), 0);
}

TEST_F(Deliveries, RangesOfRowsAreReadAndNothingBesides) {
  constexpr std::size_t kRowBytes = 2000;
  const std::vector<RowRange> ranges = {{1, 2}, {10, 700}, {701, 1500}, {2990, 3000}};
  CheckpointTensor rows{"rows", "float32", {3000, 500}, TensorKind::kSharded, ranges, -1, nullptr};
  Bytes memory(1500 * kRowBytes + 16, std::byte{0xee});
  rows.data = memory.data() + 8;
  Checkpoint checkpoint(folder_ / "step-1");
  load(checkpoint, nullptr, {rows}, false);
  const std::byte* at = rows.data;
  for (const RowRange& range : ranges) {
    const std::size_t first = static_cast<std::size_t>(range.start) * kRowBytes;
    const std::size_t bytes = static_cast<std::size_t>(range.stop - range.start) * kRowBytes;
    EXPECT_EQ(std::memcmp(at, saved_.tensors()[2].data + first, bytes), 0) << range.start;
    at += bytes;
  }
  EXPECT_EQ(at, memory.data() + memory.size() - 8);
  EXPECT_EQ(Bytes(memory.begin(), memory.begin() + 8), Bytes(8, std::byte{0xee}));
  EXPECT_EQ(Bytes(memory.end() - 8, memory.end()), Bytes(8, std::byte{0xee}));
}

TEST_F(Deliveries, DamageInAStraightBlockIsFoundAndNothingIsWrittenWhenAllIsVerifiedFirst) {
  const Checkpoint checkpoint(folder_ / "step-1");
  const SavedPiece& piece = checkpoint.find("long")->pieces[0];
  const SavedPart& part = checkpoint.index().parts[piece.part];
  std::string bytes = bytes_in_file(folder_.path() / "step-1" / part.file);
  bytes[part.header_bytes + piece.offset + piece.bytes / 2] ^= 4;
  write_file(folder_.path() / "step-1" / part.file, bytes);
  for (const bool verifies_first : {true, false}) {
    State into(long_state(), 6);
    const std::string error = thrown_by([&] {
      Checkpoint damaged(folder_ / "step-1");
      load(damaged, nullptr, into.tensors(), verifies_first);
    });
    EXPECT_THAT(error, AllOf(HasSubstr("is damaged: its checksum is wrong"), HasSubstr("long")));
    EXPECT_EQ(into == State(long_state(), 6), verifies_first);
  }
}

}  // namespace
}  // namespace horo::checkpoint
