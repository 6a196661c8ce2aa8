// What a checkpoint has: tensors, the parts that hold their rows, and checksums. docs/checkpoint_format.md has the
// text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace horo::checkpoint {

inline constexpr int kFormatVersion = 1;
inline constexpr std::uint64_t kBlockBytes = 4 << 20;  // of a part's data behind its header, with a checksum of its own
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of safetensors
inline constexpr std::uint64_t kMaxIndexBytes = 1 << 30;
inline constexpr std::size_t kMaxNameBytes = 4096;
inline constexpr std::size_t kMaxDims = 64;
inline constexpr const char* kIndexFile = "index.json";

enum class TensorKind : std::uint8_t {
  kReplicated = 0,  // equal on all ranks
  kPerRank = 1,     // that of rank 0
  kSharded = 2,     // each rank has some rows
};
const char* name_of(TensorKind kind);  // "replicated", "per rank", "sharded"

// Rows of dimension 0, from start to before stop.
struct RowRange {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  bool operator==(const RowRange&) const = default;
};

// Rows of a tensor in a part. A tensor without dimensions has one row.
struct SavedPiece {
  std::uint32_t part = 0;    // place in CheckpointIndex::parts
  std::uint64_t offset = 0;  // in the data of the part, behind its header
  std::uint64_t bytes = 0;
  std::int64_t row = 0;
  std::int64_t rows = 0;
  bool operator==(const SavedPiece&) const = default;
};

struct SavedTensor {
  std::string name;
  std::string dtype;  // torch's word
  std::vector<std::int64_t> shape;
  TensorKind kind = TensorKind::kReplicated;
  std::string alias_of;  // the name of the tensor that has its bytes; empty: it has pieces
  std::vector<SavedPiece> pieces;
  bool operator==(const SavedTensor&) const = default;
};

struct SavedPart {
  std::string file;                // in the folder of the checkpoint
  std::uint64_t bytes = 0;         // of the file
  std::uint64_t header_bytes = 0;  // its beginning, before the data
  std::uint32_t header_crc = 0;    // CRC32C
  std::vector<std::uint32_t> block_crcs;
  std::uint64_t data_bytes() const { return bytes - header_bytes; }
  // The bytes of a block: kBlockBytes, but for the last one.
  std::uint64_t block_bytes(std::size_t block) const;
  bool operator==(const SavedPart&) const = default;
};

struct CheckpointIndex {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;             // of the job
  std::vector<std::uint32_t> members;  // MemberIds of its ranks
  std::uint64_t seed = 0;
  std::string horo;  // the version that has written it
  std::string rest;  // JSON in one line, of the caller
  std::vector<SavedTensor> tensors;
  std::vector<SavedPart> parts;
  bool operator==(const CheckpointIndex&) const = default;
};

std::uint64_t blocks_of(std::uint64_t data_bytes);
// Rows of dimension 0, and the bytes of one; dtype and shape are valid.
std::int64_t rows_of(const std::vector<std::int64_t>& shape);
std::uint64_t row_bytes_of(const std::string& dtype, const std::vector<std::int64_t>& shape);
// "float32[16, 3]".
std::string form_of(const std::string& dtype, const std::vector<std::int64_t>& shape);

// Why a tensor cannot be in a checkpoint: its type, its shape, its name; empty: it can.
std::string fault_of_form(const std::string& name, const std::string& dtype, const std::vector<std::int64_t>& shape);
// Throws std::runtime_error with a sentence that names part or tensor: pieces that overlap, gaps, sizes.
void check_index(const CheckpointIndex& index);

// The text of index.json. Its last line has the checksum of what is before it.
std::string text_of(const CheckpointIndex& index);
// Throws std::runtime_error, with a sentence without the file's name: the checksum, another format, a newer version, a
// field that is missing or wrong, or check_index().
CheckpointIndex index_in(const std::string& text);
// One part, as a line of the index.
std::string text_of(const SavedPart& part);
SavedPart part_in(const std::string& text);
// The JSON text in one line. Throws std::invalid_argument if it is none, or longer than an index may be.
std::string in_one_line(const std::string& json);

}  // namespace horo::checkpoint
