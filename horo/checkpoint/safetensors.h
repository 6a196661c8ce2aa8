// The header of a safetensors file: https://github.com/huggingface/safetensors. Behind it lie the tensors, one after
// the other. `__metadata__` says where in the whole tensor each piece begins, as torch.distributed.checkpoint's
// HuggingFaceStorageReader reads it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace horo::checkpoint {

struct HeaderEntry {
  std::string name;
  std::string dtype;  // torch's word
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // in the data, behind the header
  std::uint64_t bytes = 0;
  std::int64_t row = 0;  // at which it begins in the whole tensor
};

// The beginning of the file: its size is a multiple of 4 KiB. Throws std::invalid_argument if it has more bytes than
// readers accept.
std::string header_of(std::span<const HeaderEntry> entries);

// The size of the beginning, from the first eight bytes of a file of so many bytes. Throws std::runtime_error.
std::uint64_t header_bytes_in(const std::string& eight, std::uint64_t file_bytes);
// The entries, ordered by offset, bytes and name; types and sizes are checked, and that entries and data end together.
// Throws std::runtime_error with a sentence that names the tensor.
std::vector<HeaderEntry> entries_in(const std::string& header, std::uint64_t file_bytes);

}  // namespace horo::checkpoint
