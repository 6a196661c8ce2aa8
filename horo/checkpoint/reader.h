// Reads a checkpoint. The caller gets the bytes of a block only if its checksum is right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "horo/checkpoint/files.h"
#include "horo/checkpoint/index.h"

namespace horo::checkpoint {

struct BlockPlace {
  std::uint32_t part = 0;
  std::uint32_t block = 0;  // in the part
  bool operator==(const BlockPlace&) const = default;
};

class Checkpoint {
 public:
  // Reads the index and the headers of all parts, and checks them. Throws std::runtime_error: a sentence that names the
  // file. Links are followed in the path alone, not inside.
  explicit Checkpoint(const std::string& path);
  Checkpoint(const OpenFolder& parent, const std::string& name);

  const CheckpointIndex& index() const { return index_; }
  const std::string& index_text() const { return text_; }
  const std::string& path() const { return folder_.path; }
  std::uint64_t bytes() const;                             // of all parts
  std::uint64_t data_bytes() const;                        // without their headers
  const SavedTensor* find(const std::string& name) const;  // null: there is none; an alias is found as its tensor

  std::uint64_t bytes_of(BlockPlace place) const { return index_.parts[place.part].block_bytes(place.block); }
  std::vector<BlockPlace> blocks() const;
  // Where the next bytes of a block go, of which `at` are before them.
  using PlaceForBytes = std::function<std::byte*(std::uint64_t at, std::uint64_t bytes)>;
  // Reads the block in chunks, each to where the caller says. Throws if its checksum is wrong. The kernel reads ahead
  // of a caller that takes the blocks of a part in order. One thread at a time, in this call and the next two.
  void read(BlockPlace place, const PlaceForBytes& place_for);
  // The same, of the whole block.
  void read(BlockPlace place, std::span<std::byte> to);
  // The same without the bytes.
  void verify(BlockPlace place);
  // The header of a part is that of its pieces. Throws as the constructor.
  void check_header(std::size_t part) const;

 private:
  // A piece, and the place of its tensor in the index.
  struct PlacedPiece {
    const SavedPiece* piece = nullptr;
    std::size_t tensor = 0;
  };

  struct PartFile {
    std::uint32_t part = 0;
    Fd fd;
  };

  void open_index();
  void place_tensors();
  std::string header_of_part(const SavedPart& part, const Fd& fd) const;
  const Fd& part_file(std::uint32_t part);
  std::string damage(BlockPlace place) const;

  OpenFolder folder_;
  std::string text_;
  CheckpointIndex index_;
  std::unordered_map<std::string_view, std::size_t> places_;  // of tensors, by name
  std::vector<std::vector<PlacedPiece>> by_part_;             // as they lie in the part
  std::vector<PartFile> files_;                               // of the parts that were read last, the last one behind
  std::unique_ptr<std::byte[]> chunk_;                        // for bytes that are verified alone
};

}  // namespace horo::checkpoint
