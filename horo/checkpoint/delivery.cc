#include "horo/checkpoint/delivery.h"

#include <algorithm>
#include <cstring>

#include "horo/base/past_caches.h"

namespace horo::checkpoint {
namespace {

struct Stretch {
  std::uint64_t at = 0;  // in the block
  std::uint64_t bytes = 0;
};

}  // namespace

Delivery::Delivery(const Checkpoint& checkpoint, const std::vector<CheckpointTensor>& tensors)
    : tensors_(tensors), by_part_(checkpoint.index().parts.size()) {
  for (const CheckpointTensor& tensor : tensors) {
    if (tensor.alias_of >= 0) continue;
    const std::uint64_t row_bytes = row_bytes_of(tensor.dtype, tensor.shape);
    for (const SavedPiece& piece : checkpoint.find(tensor.name)->pieces) {
      if (piece.bytes == 0) continue;
      by_part_[piece.part].push_back(
          {&tensor, piece.offset, piece.bytes, static_cast<std::uint64_t>(piece.row) * row_bytes, row_bytes});
    }
  }
  for (auto& pieces : by_part_) std::ranges::sort(pieces, {}, &WantedPiece::offset);
}

// Each place once, in the order of the files: two tensors may be one in the checkpoint.
std::vector<Delivery::Block> Delivery::merged(std::vector<Block> blocks) {
  const auto place_of = [](const Block& block) { return std::pair(block.place.part, block.place.block); };
  std::ranges::stable_sort(blocks, {}, place_of);
  std::vector<Block> found;
  for (const Block& block : blocks) {
    if (found.empty() || found.back().place != block.place) found.push_back({block.place});
    found.back().is_new &= block.is_new;
  }
  return found;
}

std::vector<Delivery::Block> Delivery::blocks(std::string_view are_new) const {
  std::vector<Block> blocks;
  for (std::size_t part = 0; part < by_part_.size(); ++part) {
    for (const WantedPiece& piece : by_part_[part]) {
      for (std::uint64_t block = piece.offset / kBlockBytes; block * kBlockBytes < piece.offset + piece.bytes;
           ++block) {
        const BlockPlace place{static_cast<std::uint32_t>(part), static_cast<std::uint32_t>(block)};
        blocks.push_back({place, are_new[static_cast<std::size_t>(piece.tensor - tensors_.data())] != 0});
      }
    }
  }
  return merged(std::move(blocks));
}

// The first piece with bytes from `offset` on; the end of the pieces: there is none.
const Delivery::WantedPiece* Delivery::first_behind(std::uint32_t part, std::uint64_t offset) const {
  const std::vector<WantedPiece>& pieces = by_part_[part];
  return std::to_address(std::ranges::partition_point(
      pieces, [offset](const WantedPiece& one) { return one.offset + one.bytes <= offset; }));
}

void Delivery::deliver(BlockPlace place, std::uint64_t at, std::span<const std::byte> bytes) const {
  const std::uint64_t begin = place.block * kBlockBytes + at, end = begin + bytes.size();
  const WantedPiece* const last = std::to_address(by_part_[place.part].end());
  for (const WantedPiece* piece = first_behind(place.part, begin); piece != last && piece->offset < end; ++piece) {
    const std::uint64_t from = std::max(begin, piece->offset), to = std::min(end, piece->offset + piece->bytes);
    put(*piece, piece->begin + from - piece->offset, bytes.subspan(from - begin, to - from));
  }
}

void Delivery::take(Checkpoint& checkpoint, BlockPlace place) {
  if (buffer_ == nullptr) buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBlockBytes);
  std::vector<Stretch> buffered;
  checkpoint.read(place, [&](std::uint64_t at, std::uint64_t bytes) {
    if (std::byte* const straight = place_of(place, at, bytes)) return straight;
    buffered.push_back({at, bytes});
    return buffer_.get() + at;
  });
  for (const auto [at, bytes] : buffered) deliver(place, at, {buffer_.get() + at, bytes});
}

// Where these bytes of the block go, if all of them go to one place; else null.
std::byte* Delivery::place_of(BlockPlace place, std::uint64_t at, std::uint64_t bytes) const {
  const std::uint64_t begin = place.block * kBlockBytes + at, end = begin + bytes;
  const WantedPiece* const last = std::to_address(by_part_[place.part].end());
  const WantedPiece* const piece = first_behind(place.part, begin);
  if (piece == last || piece->offset > begin || piece->offset + piece->bytes < end) return nullptr;
  if (piece + 1 != last && piece[1].offset < end) return nullptr;
  const std::uint64_t first = piece->begin + begin - piece->offset;  // in the tensor
  const CheckpointTensor& tensor = *piece->tensor;
  if (tensor.kind != TensorKind::kSharded) return tensor.data + first;
  std::uint64_t packed = 0;  // bytes of the ranges before
  for (const RowRange& range : tensor.ranges) {
    const std::uint64_t start = static_cast<std::uint64_t>(range.start) * piece->row_bytes;
    const std::uint64_t stop = static_cast<std::uint64_t>(range.stop) * piece->row_bytes;
    if (start <= first && first + bytes <= stop) return tensor.data + packed + first - start;
    packed += stop - start;
  }
  return nullptr;
}

// Bytes of the tensor from `at` on.
void Delivery::put(const WantedPiece& piece, std::uint64_t at, std::span<const std::byte> bytes) {
  const CheckpointTensor& tensor = *piece.tensor;
  if (tensor.kind != TensorKind::kSharded) {
    copy_past_caches(tensor.data + at, bytes.data(), bytes.size());
    return;
  }
  std::uint64_t packed = 0;  // bytes of the ranges before
  for (const RowRange& range : tensor.ranges) {
    const std::uint64_t start = static_cast<std::uint64_t>(range.start) * piece.row_bytes;
    const std::uint64_t stop = static_cast<std::uint64_t>(range.stop) * piece.row_bytes;
    const std::uint64_t from = std::max(at, start), to = std::min(at + bytes.size(), stop);
    if (from < to) std::memcpy(tensor.data + packed + from - start, bytes.data() + from - at, to - from);
    packed += stop - start;
  }
}

}  // namespace horo::checkpoint
