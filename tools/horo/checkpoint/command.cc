#include "tools/horo/checkpoint/command.h"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "horo/base/say.h"
#include "horo/checkpoint/catalog.h"
#include "horo/checkpoint/load.h"
#include "tools/horo/checkpoint/text.h"

namespace horo::tools {
namespace {

using checkpoint::Checkpoint;
using checkpoint::Listed;
using checkpoint::SavedTensor;

constexpr std::size_t kMostRest = 2000;  // characters of the rest that are printed

void print_table(const std::vector<std::vector<std::string>>& rows, std::ostream& out) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - row[i].size() + 2, ' ');
    }
    out << line << "\n";
  }
}

std::uint64_t bytes_of(const SavedTensor& tensor) {
  std::uint64_t bytes = 0;
  for (const checkpoint::SavedPiece& piece : tensor.pieces) bytes += piece.bytes;
  return bytes;
}

void print_head(const Checkpoint& found, std::ostream& out) {
  const checkpoint::CheckpointIndex& index = found.index();
  std::uint64_t bytes = 0;
  for (const SavedTensor& tensor : index.tensors) bytes += bytes_of(tensor);
  out << say("path     ", found.path(), "\nstep     ", index.step, "\nwritten  by horo ", index.horo, ", ",
             index.members.size(), index.members.size() == 1 ? " rank" : " ranks", ", epoch ", index.epoch, ", seed ",
             index.seed, "\ntensors  ", index.tensors.size(), ", ", bytes_text(bytes), "\nparts    ",
             index.parts.size(), ", ", bytes_text(found.bytes()), "\n");
  const bool is_long = index.rest.size() > kMostRest;
  out << say("rest     ", index.rest.substr(0, kMostRest), is_long ? "... (--json shows all of it)" : "", "\n\n");
}

}  // namespace

int list_checkpoints(const CheckpointOptions& options, std::ostream& out) {
  const std::vector<Listed> all = checkpoint::list(options.folder);
  if (options.json) {
    out << json_of(all) << "\n";
    return 0;
  }
  if (all.empty()) {
    out << say("no checkpoints in ", options.folder, "\n");
    return 0;
  }
  std::vector<std::vector<std::string>> rows{{"STEP", "SIZE", "PATH", "STATE"}};
  for (const Listed& one : all) {
    rows.push_back({one.step ? std::to_string(*one.step) : "-", one.bytes ? bytes_text(*one.bytes) : "-", one.path,
                    one.error.empty() ? "whole" : one.error});
  }
  print_table(rows, out);
  return 0;
}

int inspect_checkpoint(const CheckpointOptions& options, std::ostream& out) {
  const Checkpoint found(options.paths.front());
  if (options.json) {
    out << found.index_text() << "\n";
    return 0;
  }
  print_head(found, out);
  std::vector<std::vector<std::string>> rows{{"TENSOR", "FORM", "KIND", "SIZE", "PARTS"}};
  for (const SavedTensor& tensor : found.index().tensors) {
    const bool is_alias = !tensor.alias_of.empty();
    rows.push_back({tensor.name, checkpoint::form_of(tensor.dtype, tensor.shape), name_of(tensor.kind),
                    is_alias ? "-" : bytes_text(bytes_of(tensor)),
                    is_alias ? "as " + tensor.alias_of : std::to_string(tensor.pieces.size())});
  }
  print_table(rows, out);
  return 0;
}

int verify_checkpoints(const CheckpointOptions& options, std::ostream& out) {
  int result = 0;
  for (const std::string& path : options.paths) {
    try {
      Checkpoint found(path);
      {
        CheckpointProgress progress(path, found.data_bytes());
        verify(found, [&progress](std::uint64_t bytes) { progress.add(bytes); });
      }
      out << say(path, ": whole, step ", found.index().step, ", ", bytes_text(found.bytes()), " in ",
                 found.index().parts.size(), found.index().parts.size() == 1 ? " part" : " parts", "\n");
    } catch (const std::exception& error) {
      std::cerr << say("horo: ", error.what(), "\n");
      result = kDamaged;
    }
  }
  return result;
}

}  // namespace horo::tools
