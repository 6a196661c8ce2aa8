// The text of index.json: one line for each field, tensor and part, so that a person can read it and `grep` finds a
// tensor. The rest of the caller stays as it was given: its numbers may be larger than those of C++.
#include <array>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "horo/base/crc32c.h"
#include "horo/base/json_text.h"
#include "horo/base/say.h"
#include "horo/base/version.h"
#include "horo/checkpoint/index.h"

namespace horo::checkpoint {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "horo checkpoint";
constexpr std::string_view kChecksumKey = "\"crc32c\": \"";
constexpr std::string_view kRestKey = "\n\"rest\": ";
constexpr std::size_t kCrcDigits = 8;

std::string hex_of(std::uint32_t crc) {
  std::array<char, kCrcDigits + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", crc);
  return digits.data();
}

template <class Number>
std::string list_of(const std::vector<Number>& numbers) {
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  return text + "]";
}

std::string line_of(const SavedTensor& tensor) {
  std::string line = say("{\"name\": ", json_quoted(tensor.name), ", \"dtype\": ", json_quoted(tensor.dtype),
                         ", \"shape\": ", list_of(tensor.shape), ", \"kind\": \"", name_of(tensor.kind), "\", ");
  if (!tensor.alias_of.empty()) return line + "\"alias_of\": " + json_quoted(tensor.alias_of) + "}";
  line += "\"pieces\": [";
  for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
    const SavedPiece& piece = tensor.pieces[i];
    line += say(i == 0 ? "" : ", ", "{\"part\": ", piece.part, ", \"offset\": ", piece.offset,
                ", \"bytes\": ", piece.bytes, ", \"row\": ", piece.row, ", \"rows\": ", piece.rows, "}");
  }
  return line + "]}";
}

template <class Item, class Line>
std::string lines_of(const std::vector<Item>& items, Line line) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) text += (i == 0 ? "\n" : ",\n") + line(items[i]);
  return text;
}

// A value of the index, and the path to it for errors.
class Field {
 public:
  Field(const json& value, std::string path) : value_(value), path_(std::move(path)) {}

  [[noreturn]] void refuse(const char* expected) const { throw std::runtime_error(path_ + " is not " + expected); }

  Field at(const char* key) const {
    if (!value_.is_object()) refuse("an object");
    const auto found = value_.find(key);
    if (found == value_.end()) throw std::runtime_error(path_ + " has no \"" + key + "\"");
    return {*found, path_ + ", " + key};
  }
  bool has(const char* key) const { return value_.is_object() && value_.contains(key); }

  std::uint64_t number() const {
    if (!value_.is_number_unsigned()) refuse("a whole number from 0 on");
    return value_.get<std::uint64_t>();
  }
  std::int64_t size() const {
    const std::uint64_t found = number();
    if (found > INT64_MAX) refuse("a number below 2^63");
    return static_cast<std::int64_t>(found);
  }
  std::uint32_t short_number() const {
    const std::uint64_t found = number();
    if (found > UINT32_MAX) refuse("a number below 2^32");
    return static_cast<std::uint32_t>(found);
  }
  std::string text() const {
    if (!value_.is_string()) refuse("a text");
    return value_.get<std::string>();
  }
  std::uint32_t crc(const std::string& digits) const {
    std::uint32_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value, 16);
    if (error != std::errc() || stop != end || digits.size() != kCrcDigits)
      refuse("a checksum of 8 hexadecimal digits");
    return value;
  }

  template <class F>
  void each(const char* key, F f) const {
    const Field list = at(key);
    if (!list.value_.is_array()) list.refuse("a list");
    for (std::size_t i = 0; i < list.value_.size(); ++i) f(Field(list.value_[i], say(list.path_, " ", i)));
  }

 private:
  const json& value_;
  std::string path_;
};

TensorKind kind_in(const Field& from) {
  const std::string word = from.text();
  for (const TensorKind kind : {TensorKind::kReplicated, TensorKind::kPerRank, TensorKind::kSharded}) {
    if (word == name_of(kind)) return kind;
  }
  from.refuse("replicated, per rank or sharded");
}

SavedTensor read_tensor(const Field& from) {
  SavedTensor tensor;
  tensor.name = from.at("name").text();
  tensor.dtype = from.at("dtype").text();
  from.each("shape", [&](const Field& size) { tensor.shape.push_back(size.size()); });
  tensor.kind = kind_in(from.at("kind"));
  if (from.has("alias_of")) {
    tensor.alias_of = from.at("alias_of").text();
    if (tensor.alias_of.empty()) from.at("alias_of").refuse("the name of a tensor");
    return tensor;
  }
  from.each("pieces", [&](const Field& piece) {
    tensor.pieces.push_back({piece.at("part").short_number(), piece.at("offset").number(), piece.at("bytes").number(),
                             piece.at("row").size(), piece.at("rows").size()});
  });
  return tensor;
}

SavedPart read_saved_part(const Field& from) {
  SavedPart part;
  part.file = from.at("file").text();
  part.bytes = from.at("bytes").number();
  part.header_bytes = from.at("header_bytes").number();
  const Field header = from.at("header_crc32c");
  part.header_crc = header.crc(header.text());
  const Field blocks = from.at("blocks_crc32c");
  const std::string digits = blocks.text();
  for (std::size_t i = 0; i < digits.size(); i += kCrcDigits)
    part.block_crcs.push_back(blocks.crc(digits.substr(i, kCrcDigits)));
  return part;
}

json parsed(const std::string& text) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    throw std::runtime_error(say("it is not JSON: ", error.what()));
  }
}

// Another format or a newer version is told before the checksum, which may be elsewhere there.
void check_version(const Field& all) {
  if (!all.has("format") || all.at("format").text() != kFormat)
    throw std::runtime_error("it is no index of a checkpoint of horo");
  const std::uint64_t version = all.at("version").number();
  if (version != kFormatVersion) {
    throw std::runtime_error(
        say("it has version ", version, " of the format, and horo ", kVersion, " reads version ", kFormatVersion));
  }
}

void check_checksum(const std::string& text) {
  const std::size_t line = text.rfind('\n');
  const std::string last = line == std::string::npos ? "" : text.substr(line + 1);
  if (last.size() != kChecksumKey.size() + kCrcDigits + 2 || !last.starts_with(kChecksumKey) || !last.ends_with("\"}"))
    throw std::runtime_error("its last line is not the checksum: it is damaged");
  const auto before = std::as_bytes(std::span(text)).first(line + 1);
  if (last.substr(kChecksumKey.size(), kCrcDigits) != hex_of(crc32c(before)))
    throw std::runtime_error("its checksum is wrong: it is damaged");
}

std::string rest_in(const std::string& text) {
  const std::size_t at = text.find(kRestKey);
  const std::size_t end = at == std::string::npos ? at : text.find(",\n", at + kRestKey.size());
  if (end == std::string::npos) throw std::runtime_error("the index has no line \"rest\"");
  return text.substr(at + kRestKey.size(), end - at - kRestKey.size());
}

}  // namespace

std::string text_of(const SavedPart& part) {
  std::string blocks;
  for (const std::uint32_t crc : part.block_crcs) blocks += hex_of(crc);
  return say("{\"file\": ", json_quoted(part.file), ", \"bytes\": ", part.bytes,
             ", \"header_bytes\": ", part.header_bytes, ", \"header_crc32c\": \"", hex_of(part.header_crc),
             "\", \"blocks_crc32c\": \"", blocks, "\"}");
}

SavedPart part_in(const std::string& text) {
  const json value = parsed(text);
  return read_saved_part(Field(value, "the part"));
}

std::string text_of(const CheckpointIndex& index) {
  std::string text =
      say("{\n\"format\": \"", kFormat, "\",\n\"version\": ", kFormatVersion, ",\n\"step\": ", index.step,
          ",\n\"epoch\": ", index.epoch, ",\n\"members\": ", list_of(index.members), ",\n\"seed\": ", index.seed,
          ",\n\"horo\": ", json_quoted(index.horo), ",", kRestKey, index.rest, ",\n\"block_bytes\": ", kBlockBytes,
          ",\n\"tensors\": [");
  text += lines_of(index.tensors, line_of) + "\n],\n\"parts\": [";
  text += lines_of(index.parts, [](const SavedPart& part) { return text_of(part); }) + "\n],\n";
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(text)));
  return text.append(kChecksumKey).append(hex_of(crc)).append("\"}");
}

CheckpointIndex index_in(const std::string& text) {
  const json value = parsed(text);
  const Field all(value, "the index");
  check_version(all);
  check_checksum(text);
  if (all.at("block_bytes").number() != kBlockBytes) all.at("block_bytes").refuse("4194304");
  CheckpointIndex index;
  index.step = all.at("step").number();
  index.epoch = all.at("epoch").number();
  all.each("members", [&](const Field& member) { index.members.push_back(member.short_number()); });
  index.seed = all.at("seed").number();
  index.horo = all.at("horo").text();
  index.rest = rest_in(text);
  all.each("tensors", [&](const Field& tensor) { index.tensors.push_back(read_tensor(tensor)); });
  all.each("parts", [&](const Field& part) { index.parts.push_back(read_saved_part(part)); });
  check_index(index);
  return index;
}

// Line breaks lie between the tokens of JSON, never in them.
std::string in_one_line(const std::string& json_text) {
  if (json_text.size() > kMaxIndexBytes / 2)
    throw std::invalid_argument(say("rest has ", json_text.size(), " bytes, at most ", kMaxIndexBytes / 2));
  try {
    if (!json::accept(json_text)) throw std::invalid_argument("rest is not JSON");
  } catch (const json::exception& error) {
    throw std::invalid_argument(say("rest is not JSON: ", error.what()));
  }
  std::string line = json_text;
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return line;
}

}  // namespace horo::checkpoint
