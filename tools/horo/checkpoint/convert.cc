// A checkpoint as one file of safetensors, and back. Other formats are Python's: .pt, and the folders of
// torch.distributed.checkpoint.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "horo/base/say.h"
#include "horo/checkpoint/folder.h"
#include "horo/checkpoint/load.h"
#include "horo/checkpoint/safetensors.h"
#include "horo/checkpoint/save.h"
#include "tools/horo/checkpoint/command.h"
#include "tools/horo/checkpoint/text.h"

namespace horo::tools {
namespace {

using checkpoint::Checkpoint;
using checkpoint::CheckpointTensor;
using checkpoint::HeaderEntry;
using checkpoint::OpenFolder;
using checkpoint::SavedTensor;

bool is_safetensors(const std::string& path) {
  return path.ends_with(".safetensors");
}

bool is_checkpoint_folder(const std::string& path) {
  return std::filesystem::exists(std::filesystem::path(path) / checkpoint::kIndexFile);
}

// The folder of a file, and its name there.
std::pair<OpenFolder, std::string> place_of_file(const std::string& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path);
  return {checkpoint::open_folder(whole.parent_path().string(), true), whole.filename().string()};
}

std::uint64_t bytes_of_tensor(const std::string& dtype, const std::vector<std::int64_t>& shape) {
  return static_cast<std::uint64_t>(checkpoint::rows_of(shape)) * checkpoint::row_bytes_of(dtype, shape);
}

// Bytes of a part, and where they go in the file.
struct Target {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t to = 0;
};

// One file with all tensors. A block at a time is in memory; each is read once.
class OneFile {
 public:
  OneFile(Checkpoint& from, const std::string& path) : from_(from), place_(place_of_file(path)) {
    std::uint64_t next = 0;
    for (const SavedTensor& tensor : from.index().tensors) {
      const std::uint64_t bytes = bytes_of_tensor(tensor.dtype, tensor.shape);
      entries_.push_back({tensor.name, tensor.dtype, tensor.shape, next, bytes, 0});
      next += bytes;
    }
    total_ = next;
    header_ = checkpoint::header_of(entries_);
    aim();
  }

  void write() {
    const auto& [folder, name] = place_;
    const std::string made = checkpoint::temporary_name_for(name);
    const Fd fd = checkpoint::create_file(folder, made);
    const std::string path = folder.path_of(name);
    try {
      checkpoint::write_all(fd, std::as_bytes(std::span(header_)), 0, path);
      write_blocks(fd, path);
      checkpoint::sync_data(fd, path);
      checkpoint::rename_in(folder, made, name);
    } catch (const std::exception&) {
      ::unlinkat(folder.fd.get(), made.c_str(), 0);
      throw;
    }
    checkpoint::sync_folder(folder);
  }

  std::uint64_t bytes() const { return total_; }

 private:
  // An alias has the bytes of its tensor again.
  void aim() {
    by_part_.resize(from_.index().parts.size());
    for (const HeaderEntry& entry : entries_) {
      const std::uint64_t row_bytes = checkpoint::row_bytes_of(entry.dtype, entry.shape);
      for (const checkpoint::SavedPiece& piece : from_.find(entry.name)->pieces) {
        const std::uint64_t at = entry.offset + static_cast<std::uint64_t>(piece.row) * row_bytes;
        if (piece.bytes > 0) by_part_[piece.part].push_back({piece.offset, piece.bytes, header_.size() + at});
      }
    }
    for (std::vector<Target>& targets : by_part_) std::ranges::sort(targets, {}, &Target::offset);
  }

  void write_blocks(const Fd& fd, const std::string& path) {
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(checkpoint::kBlockBytes);
    CheckpointProgress progress(path, from_.data_bytes());
    for (const checkpoint::BlockPlace place : from_.blocks()) {
      const std::span<std::byte> block(buffer.get(), from_.bytes_of(place));
      from_.read(place, block);
      write_block(fd, place, block, path);
      progress.add(block.size());
    }
  }

  void write_block(const Fd& fd, checkpoint::BlockPlace place, std::span<const std::byte> block,
                   const std::string& path) const {
    const std::uint64_t begin = place.block * checkpoint::kBlockBytes, end = begin + block.size();
    const std::vector<Target>& targets = by_part_[place.part];
    auto target =
        std::ranges::partition_point(targets, [begin](const Target& one) { return one.offset + one.bytes <= begin; });
    for (; target != targets.end() && target->offset < end; ++target) {
      const std::uint64_t from = std::max(begin, target->offset), to = std::min(end, target->offset + target->bytes);
      checkpoint::write_all(fd, block.subspan(from - begin, to - from), target->to + from - target->offset, path);
    }
  }

  Checkpoint& from_;
  std::pair<OpenFolder, std::string> place_;
  std::vector<HeaderEntry> entries_;
  std::string header_;
  std::vector<std::vector<Target>> by_part_;  // as they lie in the part
  std::uint64_t total_ = 0;
};

int to_one_file(const CheckpointOptions& options, std::ostream& out) {
  Checkpoint from(options.from);
  for (std::size_t part = 0; part < from.index().parts.size(); ++part) from.check_header(part);
  OneFile file(from, options.to);
  file.write();
  out << say(options.to, ": ", from.index().tensors.size(), " tensors, ", bytes_text(file.bytes()), "\n");
  return 0;
}

std::uint64_t step_of(const CheckpointOptions& options) {
  std::uint64_t step = 0;
  const char* const end = options.step.data() + options.step.size();
  const auto [stop, error] = std::from_chars(options.step.data(), end, step);
  if (!options.step.empty() && (error != std::errc() || stop != end))
    throw std::invalid_argument("--step " + options.step + ": expected a whole number");
  return step;
}

// A checkpoint is made of the file, and its folder is to have a name of one.
void check_target_of_one_file(const std::string& to) {
  for (const std::string_view other : {".pt", ".pth", ".dcp", ".safetensors"}) {
    if (to.ends_with(other)) {
      throw std::invalid_argument(
          say(to, ": a file of safetensors becomes a checkpoint; from that, convert makes ", other));
    }
  }
}

int from_one_file(const CheckpointOptions& options, std::ostream& out) {
  const auto [folder, name] = place_of_file(options.from);
  const Fd fd = checkpoint::open_file(folder, name);
  const std::string path = folder.path_of(name);
  if (!fd.is_open()) throw std::runtime_error(path + " is missing");
  const std::uint64_t bytes = checkpoint::size_of_file(fd, path);
  std::vector<HeaderEntry> entries;
  std::string header(std::min<std::uint64_t>(bytes, 8), '\0');
  checkpoint::read_all(fd, std::as_writable_bytes(std::span(header)), 0, path);
  try {
    header.resize(checkpoint::header_bytes_in(header, bytes));
    checkpoint::read_all(fd, std::as_writable_bytes(std::span(header)), 0, path);
    entries = checkpoint::entries_in(header, bytes);
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
  std::vector<CheckpointTensor> tensors;
  for (const HeaderEntry& entry : entries)
    tensors.push_back({entry.name, entry.dtype, entry.shape, checkpoint::TensorKind::kReplicated, {}, -1, nullptr});
  checkpoint::Saver saver;
  checkpoint::SaveOptions save_options;
  save_options.path = options.to;
  save_options.step = step_of(options);
  if (!begin_save(saver, nullptr, save_options, tensors)) throw std::runtime_error("a save is being written");
  CheckpointProgress progress(options.to, bytes);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto data = std::make_unique_for_overwrite<std::byte[]>(entries[i].bytes);
    checkpoint::read_all(fd, {data.get(), entries[i].bytes}, header.size() + entries[i].offset, path);
    saver.take(i, data.get());
    progress.add(entries[i].bytes);
  }
  saver.start();
  saver.wait_until(TimePoint::max());
  out << say(options.to, ": ", entries.size(), " tensors, ", bytes_text(bytes - header.size()), "\n");
  return 0;
}

// Replaces this process.
[[noreturn]] void convert_by_python(const CheckpointOptions& options) {
  const char* const python = "python3";
  std::vector<const char*> words{python, "-m", "horo.checkpoint", "convert", options.from.c_str(), options.to.c_str()};
  if (options.trusts) words.push_back("--trust");
  if (!options.step.empty()) words.insert(words.end(), {"--step", options.step.c_str()});
  words.push_back(nullptr);
  ::execvp(python, const_cast<char* const*>(words.data()));
  throw std::runtime_error(say("cannot start ", python,
                               ", which converts .pt and folders of torch: ", std::generic_category().message(errno)));
}

}  // namespace

int convert_checkpoint(const CheckpointOptions& options, std::ostream& out) {
  if (std::filesystem::exists(options.to)) throw std::runtime_error(options.to + " exists: it is not replaced");
  if (is_checkpoint_folder(options.from) && is_safetensors(options.to)) return to_one_file(options, out);
  if (is_safetensors(options.from)) {
    check_target_of_one_file(options.to);
    return from_one_file(options, out);
  }
  convert_by_python(options);
}

}  // namespace horo::tools
