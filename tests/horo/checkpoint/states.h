// States of models for tests of checkpoints: tensors with bytes that depend on a seed, and their rows on a rank.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "horo/checkpoint/load.h"
#include "horo/checkpoint/save.h"
#include "horo/checkpoint/saver.h"

namespace horo::checkpoint {

// A folder of its own, removed at the end: in memory, where there is such a place, or on a disk.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(bool is_on_disk = false) {
    const std::filesystem::path memory = "/dev/shm";
    const bool is_there = !is_on_disk && ::access(memory.c_str(), W_OK) == 0;
    std::string name =
        ((is_there ? memory : std::filesystem::temp_directory_path()) / "horo_checkpoint_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string bytes_in_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// The form of a tensor, and which rows a rank of several has.
struct StateTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  TensorKind kind = TensorKind::kReplicated;
  int alias_of = -1;
};

// The state of one rank of several. Sharded tensors are dealt in stripes of 3 rows: rank r has stripes r, r + n, ...
class State {
 public:
  State(const std::vector<StateTensor>& forms, std::uint64_t seed, std::size_t rank = 0, std::size_t ranks = 1) {
    memory_.resize(forms.size());
    for (std::size_t i = 0; i < forms.size(); ++i) {
      const StateTensor& form = forms[i];
      CheckpointTensor tensor{form.name, form.dtype, form.shape, form.kind, {}, form.alias_of, nullptr};
      const std::uint64_t row_bytes = row_bytes_of(form.dtype, form.shape);
      if (form.kind == TensorKind::kSharded) {
        for (std::int64_t row = static_cast<std::int64_t>(rank) * 3; row < rows_of(form.shape);
             row += static_cast<std::int64_t>(ranks) * 3)
          tensor.ranges.push_back({row, std::min(row + 3, rows_of(form.shape))});
        for (const RowRange& range : tensor.ranges) fill(i, range, row_bytes, seed);
      } else if (form.alias_of < 0) {
        fill(i, {0, rows_of(form.shape)}, row_bytes, seed + (form.kind == TensorKind::kPerRank ? rank : 0));
      }
      tensors_.push_back(tensor);
    }
    for (std::size_t i = 0; i < forms.size(); ++i) {
      const bool is_alias = forms[i].alias_of >= 0;
      tensors_[i].data = memory_[is_alias ? static_cast<std::size_t>(forms[i].alias_of) : i].data();
    }
  }

  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  std::vector<CheckpointTensor>& tensors() { return tensors_; }
  bool operator==(const State& other) const { return memory_ == other.memory_; }
  // The tensor has the value that it has there.
  void copy(std::size_t tensor, const State& from) { std::ranges::copy(from.memory_[tensor], memory_[tensor].begin()); }
  void clear() {
    for (auto& bytes : memory_) std::ranges::fill(bytes, std::byte{0xee});
  }

 private:
  void fill(std::size_t i, RowRange range, std::uint64_t row_bytes, std::uint64_t seed) {
    for (std::uint64_t at = static_cast<std::uint64_t>(range.start) * row_bytes;
         at < static_cast<std::uint64_t>(range.stop) * row_bytes; ++at) {
      std::uint64_t value = (at / 8 + 1) * 0x9e3779b97f4a7c15 + seed * 0xbf58476d1ce4e5b9 + i * 0x94d049bb133111eb;
      value ^= value >> 29;
      memory_[i].push_back(static_cast<std::byte>(value >> (at % 8 * 8)));
    }
  }

  std::vector<std::vector<std::byte>> memory_;
  std::vector<CheckpointTensor> tensors_;
};

// Tensors of all kinds: cut ones, a scalar, empty ones, odd sizes, several types, tied ones.
inline std::vector<StateTensor> small_state() {
  return {{"model.0.weight", "float32", {37, 11}},
          {"model.0.bias", "bfloat16", {37}},
          {"model.step", "int64", {}},
          {"model.mask", "bool", {5, 3}},
          {"model.empty", "float32", {0, 4}},
          {"model.hollow", "float16", {4, 0}},
          {"model.tied", "float32", {37, 11}, TensorKind::kReplicated, 0},
          {"norm.mean", "float64", {9}, TensorKind::kPerRank},
          {"optimizer.\"odd\" näme", "complex128", {7, 2}},
          {"shard.a", "float32", {50, 3}, TensorKind::kSharded},
          {"shard.b", "uint8", {7}, TensorKind::kSharded},
          {"large", "float32", {1 << 10, 1 << 10}}};
}

// Gives all parts of this rank.
inline void take_all(Saver& saver, const State& state) {
  for (std::size_t i = 0; i < state.tensors().size(); ++i) {
    const CheckpointTensor& tensor = state.tensors()[i];
    saver.take(
        i, tensor.data + static_cast<std::uint64_t>(saver.part(i).start) * row_bytes_of(tensor.dtype, tensor.shape));
  }
}

// Saves without a session.
inline void save_alone(const std::string& path, const State& state, std::uint64_t step = 1, std::uint32_t keep = 0) {
  SaveOptions options;
  options.path = path;
  options.step = step;
  options.keep = keep;
  save(nullptr, options, state.tensors());
}

}  // namespace horo::checkpoint
