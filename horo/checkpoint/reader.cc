#include "horo/checkpoint/reader.h"

#include <fcntl.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "horo/base/crc32c.h"
#include "horo/base/say.h"
#include "horo/checkpoint/safetensors.h"

namespace horo::checkpoint {
namespace {

constexpr std::uint64_t kChunkBytes = 256 << 10;  // that the caches have
constexpr std::size_t kMostFiles = 64;            // that are open

Fd open_part(const OpenFolder& folder, const SavedPart& part) {
  const std::string path = folder.path_of(part.file);
  Fd fd = open_file(folder, part.file);
  if (!fd.is_open()) throw std::runtime_error(path + " is missing");
  const std::uint64_t bytes = size_of_file(fd, path);
  if (bytes != part.bytes) {
    throw std::runtime_error(say(path, " has ", bytes, " bytes, and by the index ", part.bytes, ": it is damaged"));
  }
  return fd;
}

}  // namespace

Checkpoint::Checkpoint(const std::string& path) : folder_(open_folder(path, true)) {
  open_index();
}

Checkpoint::Checkpoint(const OpenFolder& parent, const std::string& name) : folder_(open_folder_in(parent, name)) {
  open_index();
}

void Checkpoint::open_index() {
  const std::string path = folder_.path_of(kIndexFile);
  const Fd fd = open_file(folder_, kIndexFile);
  if (!fd.is_open()) throw std::runtime_error(path + " is missing: the folder is no checkpoint of horo");
  text_ = text_in_file(fd, path, kMaxIndexBytes);
  try {
    index_ = index_in(text_);
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
  place_tensors();
  for (const SavedPart& part : index_.parts) header_of_part(part, open_part(folder_, part));
}

void Checkpoint::place_tensors() {
  by_part_.resize(index_.parts.size());
  for (std::size_t i = 0; i < index_.tensors.size(); ++i) {
    places_.emplace(index_.tensors[i].name, i);
    for (const SavedPiece& piece : index_.tensors[i].pieces) by_part_[piece.part].push_back({&piece, i});
  }
  for (std::vector<PlacedPiece>& pieces : by_part_) {
    std::ranges::sort(pieces, {}, [this](const PlacedPiece& one) {
      return std::tuple(one.piece->offset, one.piece->bytes, std::string_view(index_.tensors[one.tensor].name));
    });
  }
}

std::string Checkpoint::header_of_part(const SavedPart& part, const Fd& fd) const {
  const std::string path = folder_.path_of(part.file);
  std::string header(part.header_bytes, '\0');
  read_all(fd, std::as_writable_bytes(std::span(header)), 0, path);
  if (crc32c(std::as_bytes(std::span(header))) != part.header_crc)
    throw std::runtime_error(path + ": the checksum of its header is wrong: it is damaged");
  return header;
}

void Checkpoint::check_header(std::size_t place) const {
  const SavedPart& part = index_.parts[place];
  const std::string path = folder_.path_of(part.file);
  const std::string header = header_of_part(part, open_part(folder_, part));
  try {
    if (header_bytes_in(header.substr(0, 8), part.bytes) != part.header_bytes)
      throw std::runtime_error("the size of its header is another one than in the index");
    const std::vector<HeaderEntry> entries = entries_in(header, part.bytes);
    const std::vector<PlacedPiece>& pieces = by_part_[place];
    if (pieces.size() != entries.size()) throw std::runtime_error("its header has other tensors than the index");
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const SavedPiece& piece = *pieces[i].piece;
      const std::string& name = index_.tensors[pieces[i].tensor].name;
      if (entries[i].name != name || entries[i].offset != piece.offset || entries[i].bytes != piece.bytes)
        throw std::runtime_error(say("its header and the index differ in ", name));
    }
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

std::uint64_t Checkpoint::bytes() const {
  std::uint64_t bytes = 0;
  for (const SavedPart& part : index_.parts) bytes += part.bytes;
  return bytes;
}

std::uint64_t Checkpoint::data_bytes() const {
  std::uint64_t bytes = 0;
  for (const SavedPart& part : index_.parts) bytes += part.data_bytes();
  return bytes;
}

const SavedTensor* Checkpoint::find(const std::string& name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return nullptr;
  const SavedTensor& tensor = index_.tensors[found->second];
  return tensor.alias_of.empty() ? &tensor : find(tensor.alias_of);
}

std::vector<BlockPlace> Checkpoint::blocks() const {
  std::vector<BlockPlace> places;
  for (std::size_t part = 0; part < index_.parts.size(); ++part) {
    for (std::size_t block = 0; block < index_.parts[part].block_crcs.size(); ++block)
      places.push_back({static_cast<std::uint32_t>(part), static_cast<std::uint32_t>(block)});
  }
  return places;
}

const Fd& Checkpoint::part_file(std::uint32_t part) {
  const auto found = std::ranges::find(files_, part, &PartFile::part);
  if (found != files_.end()) {
    std::rotate(found, found + 1, files_.end());
    return files_.back().fd;
  }
  if (files_.size() == kMostFiles) files_.erase(files_.begin());
  files_.push_back({part, open_part(folder_, index_.parts[part])});
  ::posix_fadvise(files_.back().fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  return files_.back().fd;
}

// A chunk is summed up while the caches have it. POSIX_FADV_WILLNEED would read ahead in small pages, which took three
// times as long as the kernel's own reading ahead of a sequential reader.
void Checkpoint::read(BlockPlace place, const PlaceForBytes& place_for) {
  const SavedPart& part = index_.parts[place.part];
  const Fd& fd = part_file(place.part);
  const std::string path = folder_.path_of(part.file);
  const std::uint64_t begin = part.header_bytes + place.block * kBlockBytes, bytes = bytes_of(place);
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; at < bytes; at += kChunkBytes) {
    const std::uint64_t most = std::min(kChunkBytes, bytes - at);
    const std::span chunk(place_for(at, most), most);
    read_all(fd, chunk, begin + at, path);
    crc = crc32c(chunk, crc);
  }
  if (crc != part.block_crcs[place.block]) throw std::runtime_error(damage(place));
}

void Checkpoint::read(BlockPlace place, std::span<std::byte> to) {
  read(place, [to](std::uint64_t at, std::uint64_t) { return to.data() + at; });
}

void Checkpoint::verify(BlockPlace place) {
  if (chunk_ == nullptr) chunk_ = std::make_unique_for_overwrite<std::byte[]>(kChunkBytes);
  read(place, [this](std::uint64_t, std::uint64_t) { return chunk_.get(); });
}

std::string Checkpoint::damage(BlockPlace place) const {
  const std::uint64_t begin = place.block * kBlockBytes, end = begin + bytes_of(place);
  std::string names;
  for (const auto& [piece, tensor] : by_part_[place.part]) {
    if (piece->bytes == 0 || piece->offset >= end || piece->offset + piece->bytes <= begin) continue;
    if (names.size() > 200) {
      names += ", ...";
      break;
    }
    names += (names.empty() ? "" : ", ") + index_.tensors[tensor].name;
  }
  return say(folder_.path_of(index_.parts[place.part].file), ": block ", place.block,
             " is damaged: its checksum is wrong. It has bytes of ", names);
}

}  // namespace horo::checkpoint
