// An index or a header of a checkpoint is accepted only if it is valid: an accepted index is written and read again as
// the same one, and each of its pieces lies in its part.
#include <array>
#include <cstdio>
#include <stdexcept>

#include "horo/base/check.h"
#include "horo/base/crc32c.h"
#include "horo/checkpoint/index.h"
#include "horo/checkpoint/safetensors.h"
#include "tests/fuzz/targets.h"

namespace horo {
namespace {

using checkpoint::CheckpointIndex;
using checkpoint::HeaderEntry;

constexpr std::uint64_t kFileBytes = 4096 + 24;

std::string right_index() {
  CheckpointIndex index;
  index.step = 12;
  index.members = {0, 1};
  index.horo = "0.1.0";
  index.rest = "{\"x\": [1]}";
  index.tensors.push_back({"a", "float32", {3, 2}, {}, "", {{0, 0, 8, 0, 1}, {1, 0, 16, 1, 2}}});
  index.tensors.push_back({"b", "float32", {3, 2}, {}, "a", {}});
  index.tensors.push_back({"c", "uint8", {2}, checkpoint::TensorKind::kSharded, "", {{1, 16, 2, 0, 2}}});
  index.parts.push_back({"part-0.safetensors", 4096 + 8, 4096, 7, {1}});
  index.parts.push_back({"part-1.safetensors", 4096 + 18, 4096, 9, {2}});
  return text_of(index);
}

std::string right_header() {
  const std::array entries{HeaderEntry{"a", "float32", {2, 2}, 0, 16, 1}, HeaderEntry{"b", "int64", {}, 16, 8, 0}};
  return checkpoint::header_of(entries);
}

// Its last line has the checksum of the lines before.
std::string with_checksum(std::string text) {
  text.resize(text.rfind('\n') + 1);
  std::array<char, 32> line{};
  std::snprintf(line.data(), line.size(), "\"crc32c\": \"%08x\"}", crc32c(std::as_bytes(std::span(text))));
  return text + line.data();
}

bool reads_index(const std::string& text) {
  try {
    const CheckpointIndex index = checkpoint::index_in(text);
    for (const auto& tensor : index.tensors) {
      for (const auto& piece : tensor.pieces)
        HORO_CHECK(piece.offset + piece.bytes <= index.parts.at(piece.part).data_bytes());
    }
    HORO_CHECK(checkpoint::index_in(text_of(index)) == index);
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

bool reads_header(const std::string& text) {
  try {
    const std::uint64_t bytes = checkpoint::header_bytes_in(text.substr(0, 8), kFileBytes);
    if (bytes > text.size()) return false;
    for (const HeaderEntry& entry : checkpoint::entries_in(text.substr(0, bytes), kFileBytes))
      HORO_CHECK(entry.offset + entry.bytes <= kFileBytes - bytes);
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

}  // namespace

// Characters of a right index or header are changed, or the text is noise.
bool fuzz_checkpoints(std::span<const std::byte> bytes) {
  static const std::string index = right_index(), header = right_header();
  FuzzInput input(bytes);
  const std::size_t which = input.below(8);
  const bool is_header = which % 2 == 1;
  const auto noise = input.rest();
  if (which == 6) return reads_index(with_checksum({reinterpret_cast<const char*>(noise.data()), noise.size()}));
  if (which == 7) return reads_header({reinterpret_cast<const char*>(noise.data()), noise.size()});
  std::string text = is_header ? header : index;
  while (!input.is_empty()) {
    const std::size_t at = input.below(is_header ? 300 : text.size());
    const auto with = static_cast<char>(input.number(1));
    if (text[at] >= '0' && text[at] <= '9') {
      text[at] = static_cast<char>('0' + static_cast<unsigned char>(with) % 10);
    } else {
      text[at] = with;
    }
  }
  return is_header ? reads_header(text) : reads_index(with_checksum(text));
}

}  // namespace horo
