#include "horo/checkpoint/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include "horo/base/json_text.h"
#include "horo/base/say.h"
#include "horo/checkpoint/dtypes.h"
#include "horo/checkpoint/index.h"

namespace horo::checkpoint {
namespace {

using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kAlignment = 4096;
constexpr const char* kOffsets = "saved_offsets";

template <class Number>
std::string numbers(const std::vector<Number>& list) {
  std::string text = "[";
  for (std::size_t i = 0; i < list.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(list[i]);
  return text + "]";
}

// The shape as safetensors has it, and where the piece begins in each dimension.
std::vector<std::int64_t> header_shape(const HeaderEntry& entry) {
  std::vector<std::int64_t> shape = entry.shape;
  if (type_of_torch(entry.dtype)->is_pair) shape.push_back(2);
  return shape;
}

std::string sharding_of(std::span<const HeaderEntry> entries) {
  std::string text = "{";
  for (const HeaderEntry& entry : entries) {
    std::vector<std::int64_t> offsets(header_shape(entry).size());
    if (!entry.shape.empty()) offsets.front() = entry.row;
    text += say(text.size() == 1 ? "" : ",", json_quoted(entry.name), ":{\"", kOffsets, "\":", numbers(offsets), "}");
  }
  return text + "}";
}

std::uint64_t length_in(const std::string& eight) {
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(eight[i]);
  return length;
}

std::uint64_t whole_number(const json& value, const std::string& name) {
  if (!value.is_number_unsigned()) throw std::runtime_error(say(name, " has a shape or offset that is no number"));
  return value.get<std::uint64_t>();
}

HeaderEntry entry_in(const std::string& name, const json& value) {
  const auto field = [&](const char* key) -> const json& {
    if (!value.is_object() || !value.contains(key)) throw std::runtime_error(say(name, " has no \"", key, "\""));
    return value.at(key);
  };
  HeaderEntry entry;
  entry.name = name;
  const json& dtype = field("dtype");
  const ElementType* type = dtype.is_string() ? type_of_safetensors(dtype.get_ref<const std::string&>()) : nullptr;
  if (type == nullptr) throw std::runtime_error(say(name, " has the unknown type ", dtype.dump(-1, ' ', true)));
  entry.dtype = type->torch;
  const json &shape = field("shape"), &offsets = field("data_offsets");
  if (!shape.is_array() || !offsets.is_array() || offsets.size() != 2)
    throw std::runtime_error(say(name, " has no list of sizes, or no two offsets"));
  for (const json& size : shape)
    entry.shape.push_back(static_cast<std::int64_t>(std::min<std::uint64_t>(whole_number(size, name), INT64_MAX)));
  const std::string fault = fault_of_form(name, entry.dtype, entry.shape);
  if (!fault.empty()) throw std::runtime_error(fault);
  entry.offset = whole_number(offsets[0], name);
  const std::uint64_t end = whole_number(offsets[1], name);
  entry.bytes = static_cast<std::uint64_t>(rows_of(entry.shape)) * row_bytes_of(entry.dtype, entry.shape);
  if (end < entry.offset || end - entry.offset != entry.bytes)
    throw std::runtime_error(say(name, " is ", form_of(entry.dtype, entry.shape), ", and has other bytes"));
  return entry;
}

}  // namespace

std::string header_of(std::span<const HeaderEntry> entries) {
  std::string text = "{\"__metadata__\":{\"format\":\"pt\",\"DCP_SHARDING_INFO\":";
  text += json_quoted(sharding_of(entries)) + "}";
  for (const HeaderEntry& entry : entries) {
    text += say(",", json_quoted(entry.name), ":{\"dtype\":\"", type_of_torch(entry.dtype)->safetensors,
                "\",\"shape\":", numbers(header_shape(entry)), ",\"data_offsets\":[", entry.offset, ",",
                entry.offset + entry.bytes, "]}");
  }
  text += "}";
  text.resize((kLengthBytes + text.size() + kAlignment - 1) / kAlignment * kAlignment - kLengthBytes, ' ');
  if (text.size() > kMaxHeaderBytes) {
    throw std::invalid_argument(say("a rank has ", entries.size(), " tensors, whose names and shapes take ",
                                    text.size(), " bytes: safetensors allows ", kMaxHeaderBytes));
  }
  std::string length(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

std::uint64_t header_bytes_in(const std::string& eight, std::uint64_t file_bytes) {
  if (eight.size() != kLengthBytes) throw std::runtime_error("it is shorter than 8 bytes: no safetensors file");
  const std::uint64_t length = length_in(eight);
  if (length > kMaxHeaderBytes || length > file_bytes - kLengthBytes) {
    throw std::runtime_error(say("its header is said to have ", length, " bytes, and the file has ", file_bytes,
                                 ": it is damaged, or no safetensors file"));
  }
  return kLengthBytes + length;
}

std::vector<HeaderEntry> entries_in(const std::string& header, std::uint64_t file_bytes) {
  json all;
  try {
    all = json::parse(header.begin() + kLengthBytes, header.end());
  } catch (const json::exception& error) {
    throw std::runtime_error(say("its header is not JSON: ", error.what()));
  }
  if (!all.is_object()) throw std::runtime_error("its header is not a JSON object");
  std::vector<HeaderEntry> entries;
  for (const auto& [name, value] : all.items()) {
    if (name != "__metadata__") entries.push_back(entry_in(name, value));
  }
  std::ranges::sort(entries, {}, [](const HeaderEntry& entry) {
    return std::tuple(entry.offset, entry.bytes, std::string_view(entry.name));
  });
  std::uint64_t next = 0;
  for (const HeaderEntry& entry : entries) {
    if (entry.offset != next) throw std::runtime_error(say(entry.name, " overlaps another tensor, or has a gap"));
    next += entry.bytes;
  }
  if (next != file_bytes - header.size())
    throw std::runtime_error(say("its tensors have ", next, " bytes, and its data ", file_bytes - header.size()));
  return entries;
}

}  // namespace horo::checkpoint
