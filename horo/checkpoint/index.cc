#include "horo/checkpoint/index.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

#include "horo/base/json_text.h"
#include "horo/base/say.h"
#include "horo/checkpoint/dtypes.h"

namespace horo::checkpoint {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 60;  // of a tensor, or of a part

[[noreturn]] void refuse_index(const std::string& why) {
  throw std::runtime_error(why);
}

// False: the bytes of a tensor of this form exceed kMaxBytes.
bool has_small_form(std::uint64_t element_bytes, const std::vector<std::int64_t>& shape) {
  std::uint64_t bytes = element_bytes;
  for (const std::int64_t size : shape) {
    const auto rows = std::max<std::uint64_t>(static_cast<std::uint64_t>(size), 1);
    if (__builtin_mul_overflow(bytes, rows, &bytes) || bytes > kMaxBytes) return false;
  }
  return true;
}

bool is_file_name(const std::string& name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= 255 && name.front() != '.' && std::ranges::all_of(name, is_allowed);
}

bool is_utf8(const std::string& text) {
  const auto unknown_in = [](std::string_view in) {
    std::size_t count = 0;
    for (std::size_t at = in.find("\xef\xbf\xbd"); at != std::string_view::npos; at = in.find("\xef\xbf\xbd", at + 3))
      ++count;
    return count;
  };
  return unknown_in(json_quoted(text)) == unknown_in(text);
}

void check_part(const SavedPart& part, std::set<std::string>& files) {
  if (!is_file_name(part.file)) {
    refuse_index(say("the part ", json_quoted(part.file), " has a name with other letters than A-Z, a-z, 0-9, . _ -"));
  }
  if (!files.insert(part.file).second) refuse_index(say("the part ", part.file, " is there twice"));
  if (part.header_bytes < 8 || part.header_bytes > kMaxHeaderBytes + 8 || part.bytes < part.header_bytes ||
      part.bytes > kMaxBytes) {
    refuse_index(say("the part ", part.file, " has ", part.bytes, " bytes and a header of ", part.header_bytes));
  }
  if (part.block_crcs.size() != blocks_of(part.data_bytes())) {
    refuse_index(say("the part ", part.file, " has ", part.block_crcs.size(), " checksums, and ",
                     blocks_of(part.data_bytes()), " blocks"));
  }
}

struct PlacedPiece {
  const SavedPiece* piece;
  const SavedTensor* tensor;
};

// The pieces have each row once, and each piece lies in its part.
void check_rows(const CheckpointIndex& index, const SavedTensor& tensor,
                std::vector<std::vector<PlacedPiece>>& placed) {
  const std::int64_t rows = rows_of(tensor.shape);
  const std::uint64_t row_bytes = row_bytes_of(tensor.dtype, tensor.shape);
  std::vector<const SavedPiece*> pieces;
  for (const SavedPiece& piece : tensor.pieces) pieces.push_back(&piece);
  std::ranges::stable_sort(pieces, {}, [](const SavedPiece* piece) { return piece->row; });
  std::int64_t next = 0;
  for (const SavedPiece* piece : pieces) {
    if (piece->row != next || piece->rows < 0 || piece->rows > rows - next) {
      refuse_index(say("the pieces of ", tensor.name, " have ", piece->row < next ? "rows twice" : "a gap", " at row ",
                       std::min(piece->row, next), " of ", rows));
    }
    next += piece->rows;
    if (piece->part >= index.parts.size())
      refuse_index(say("a piece of ", tensor.name, " is in part ", piece->part, " of ", index.parts.size()));
    const SavedPart& part = index.parts[piece->part];
    if (piece->bytes != static_cast<std::uint64_t>(piece->rows) * row_bytes || piece->offset > part.data_bytes() ||
        piece->bytes > part.data_bytes() - piece->offset) {
      refuse_index(say("a piece of ", tensor.name, " with ", piece->rows, " rows has ", piece->bytes, " bytes at ",
                       piece->offset, " of ", part.file, ", which has ", part.data_bytes()));
    }
    placed[piece->part].push_back({piece, &tensor});
  }
  if (next != rows) refuse_index(say("the pieces of ", tensor.name, " have ", next, " of ", rows, " rows"));
}

using TensorsByName = std::unordered_map<std::string_view, const SavedTensor*>;

// names: of the tensors before this one.
void check_alias(const SavedTensor& tensor, const TensorsByName& names) {
  if (!tensor.pieces.empty()) refuse_index(say(tensor.name, " is an alias, and has pieces"));
  const auto found = names.find(tensor.alias_of);
  const SavedTensor* const base = found == names.end() ? nullptr : found->second;
  if (base == nullptr || !base->alias_of.empty()) {
    refuse_index(say(tensor.name, " is an alias of ", json_quoted(tensor.alias_of), ", which has no pieces before it"));
  }
  if (base->dtype != tensor.dtype || base->shape != tensor.shape) {
    refuse_index(say(tensor.name, " is an alias of ", tensor.alias_of, ", but is ", form_of(tensor.dtype, tensor.shape),
                     " and not ", form_of(base->dtype, base->shape)));
  }
}

// The pieces of a part lie one behind the other, as safetensors demands.
void check_layout(const SavedPart& part, std::vector<PlacedPiece>& placed) {
  std::ranges::sort(placed, {}, [](const PlacedPiece& one) { return std::pair(one.piece->offset, one.piece->bytes); });
  std::uint64_t next = 0;
  for (const PlacedPiece& one : placed) {
    if (one.piece->offset != next) {
      refuse_index(say("in ", part.file, " the piece of ", one.tensor->name,
                       one.piece->offset < next ? " overlaps the one before it" : " has a gap before it"));
    }
    next += one.piece->bytes;
  }
  if (next != part.data_bytes())
    refuse_index(say("the pieces in ", part.file, " have ", next, " of ", part.data_bytes(), " bytes"));
}

}  // namespace

const char* name_of(TensorKind kind) {
  return kind == TensorKind::kReplicated ? "replicated" : kind == TensorKind::kPerRank ? "per rank" : "sharded";
}

std::uint64_t SavedPart::block_bytes(std::size_t block) const {
  return std::min(kBlockBytes, data_bytes() - block * kBlockBytes);
}

std::uint64_t blocks_of(std::uint64_t data_bytes) {
  return (data_bytes + kBlockBytes - 1) / kBlockBytes;
}

std::int64_t rows_of(const std::vector<std::int64_t>& shape) {
  return shape.empty() ? 1 : shape.front();
}

std::uint64_t row_bytes_of(const std::string& dtype, const std::vector<std::int64_t>& shape) {
  std::uint64_t bytes = type_of_torch(dtype)->bytes;
  for (std::size_t i = 1; i < shape.size(); ++i) bytes *= static_cast<std::uint64_t>(shape[i]);
  return bytes;
}

std::string form_of(const std::string& dtype, const std::vector<std::int64_t>& shape) {
  std::string text = dtype + "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

std::string fault_of_form(const std::string& name, const std::string& dtype, const std::vector<std::int64_t>& shape) {
  if (name.empty()) return "a tensor has no name";
  if (name.size() > kMaxNameBytes) return say("the name ", name.substr(0, 100), "... has more than 4096 bytes");
  if (std::ranges::any_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    return say("the name ", json_quoted(name), " has a control character");
  if (!is_utf8(name)) return say("the name ", json_quoted(name), " is not UTF-8");
  if (name == "__metadata__") return "a tensor is named __metadata__, which safetensors has another use for";
  const ElementType* type = type_of_torch(dtype);
  if (type == nullptr) return say(name, " is of the type ", json_quoted(dtype), ", which a checkpoint does not have");
  if (shape.size() > kMaxDims) return say(name, " has ", shape.size(), " dimensions, at most ", kMaxDims);
  if (std::ranges::any_of(shape, [](std::int64_t size) { return size < 0; }))
    return say(name, " has a negative size: ", form_of(dtype, shape));
  if (!has_small_form(type->bytes, shape)) return say(name, " is too large: ", form_of(dtype, shape));
  return "";
}

void check_index(const CheckpointIndex& index) {
  std::set<std::string> files;
  for (const SavedPart& part : index.parts) check_part(part, files);
  TensorsByName names;
  std::vector<std::vector<PlacedPiece>> placed(index.parts.size());
  for (const SavedTensor& tensor : index.tensors) {
    const std::string fault = fault_of_form(tensor.name, tensor.dtype, tensor.shape);
    if (!fault.empty()) refuse_index(fault);
    if (names.contains(tensor.name)) refuse_index(say(tensor.name, " is there twice"));
    if (tensor.alias_of.empty()) {
      check_rows(index, tensor, placed);
    } else {
      check_alias(tensor, names);
    }
    names.emplace(tensor.name, &tensor);
  }
  for (std::size_t i = 0; i < index.parts.size(); ++i) check_layout(index.parts[i], placed[i]);
}

}  // namespace horo::checkpoint
