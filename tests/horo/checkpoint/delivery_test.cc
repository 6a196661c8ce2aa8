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

  // Flips a bit in the first piece of the tensor. Returns what was in the file.
  std::string damage(const std::string& tensor) {
    const std::string path = file_of(tensor), before = bytes_in_file(path);
    std::string bytes = before;
    const Checkpoint checkpoint(folder_ / "step-1");
    const SavedPiece& piece = checkpoint.find(tensor)->pieces[0];
    bytes[checkpoint.index().parts[piece.part].header_bytes + piece.offset + piece.bytes / 2] ^= 4;
    write_file(path, bytes);
    return before;
  }
  void mend(const std::string& tensor, const std::string& before) { write_file(file_of(tensor), before); }
  std::string file_of(const std::string& tensor) {
    const Checkpoint checkpoint(folder_ / "step-1");
    return folder_ / "step-1/" + checkpoint.index().parts[checkpoint.find(tensor)->pieces[0].part].file;
  }

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
  damage("long");
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

// Each rank on a host of its own, too.
TEST_F(Deliveries, MemoryInUseIsNotWrittenIfThereIsDamageAnywhere) {
  for (const char* damaged : {"long", "rows"}) {
    const std::string before = damage(damaged);
    for (const bool has_hosts : {false, true}) {
      const auto errors = run_world(
          2,
          [&](Session& session) {
            const auto rank = static_cast<std::size_t>(session.topology().rank);
            State into(long_state(), 6, rank, 2);
            into.tensors()[1].is_new = true;
            Checkpoint checkpoint(folder_ / "step-1");
            EXPECT_THAT(thrown_by([&] { load(checkpoint, &session, into.tensors()); }), HasSubstr(damaged));
            into.copy(1, State(long_state(), 6, rank, 2));
            EXPECT_TRUE(into == State(long_state(), 6, rank, 2)) << damaged;
            meet(session);
          },
          {}, [&](Config& config) { config.local_size = has_hosts ? 1 : 2; });
      EXPECT_THAT(errors, testing::Each(""));
    }
    mend(damaged, before);
  }
}

}  // namespace
}  // namespace horo::checkpoint
