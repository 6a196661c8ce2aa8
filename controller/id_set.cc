// The ids of tensors that become ready at about the same time are close together, because they were given in that
// order: a bitmap takes an eighth of a byte per id, a list four bytes.
#include "controller/id_set.h"

#include <algorithm>
#include <string>

#include "horo/base/error.h"

namespace horo {
namespace {

enum class Form : std::uint8_t { kNone = 0, kList = 1, kBitmap = 2 };

void check_id(std::uint64_t id, std::uint32_t limit) {
  if (id < limit) return;
  throw ProtocolError("number " + std::to_string(id) + " of a tensor or plan, less than " + std::to_string(limit) +
                      " expected");
}

std::vector<std::uint32_t> read_list(ByteReader& in, std::uint32_t limit) {
  std::vector<std::uint32_t> ids(in.count(4));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = in.u32();
    check_id(ids[i], limit);
    if (i > 0 && ids[i] <= ids[i - 1]) throw ProtocolError("a list of numbers that does not ascend");
  }
  return ids;
}

std::vector<std::uint32_t> read_bitmap(ByteReader& in, std::uint32_t limit) {
  const std::uint32_t first = in.u32();
  const auto bitmap = in.raw(in.count(1));
  std::vector<std::uint32_t> ids;
  for (std::size_t i = 0; i < bitmap.size() * 8; ++i) {
    if ((std::to_integer<unsigned>(bitmap[i / 8]) >> (i % 8) & 1U) == 0) continue;
    check_id(first + std::uint64_t{i}, limit);
    ids.push_back(first + static_cast<std::uint32_t>(i));
  }
  return ids;
}

}  // namespace

void write_ids(ByteWriter& out, std::vector<std::uint32_t>& ids) {
  std::sort(ids.begin(), ids.end());
  if (ids.empty()) return out.u8(static_cast<std::uint8_t>(Form::kNone));
  const std::size_t bitmap_bytes = (ids.back() - ids.front()) / 8 + 1;
  if (4 + 4 * ids.size() <= 8 + bitmap_bytes) {
    out.u8(static_cast<std::uint8_t>(Form::kList));
    out.u32(static_cast<std::uint32_t>(ids.size()));
    for (const std::uint32_t id : ids) out.u32(id);
    return;
  }
  std::vector<std::byte> bitmap(bitmap_bytes);
  for (const std::uint32_t id : ids) {
    bitmap[(id - ids.front()) / 8] |= std::byte{1} << ((id - ids.front()) % 8);
  }
  out.u8(static_cast<std::uint8_t>(Form::kBitmap));
  out.u32(ids.front());
  out.u32(static_cast<std::uint32_t>(bitmap.size()));
  out.raw(bitmap);
}

std::vector<std::uint32_t> read_ids(ByteReader& in, std::uint32_t limit) {
  switch (static_cast<Form>(in.u8())) {
    case Form::kNone:
      return {};
    case Form::kList:
      return read_list(in, limit);
    case Form::kBitmap:
      return read_bitmap(in, limit);
  }
  throw ProtocolError("a set of numbers in an unknown form");
}

}  // namespace horo
