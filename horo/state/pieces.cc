#include "horo/state/pieces.h"

#include <algorithm>
#include <map>
#include <utility>

#include "horo/base/hash.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

constexpr std::size_t kMostText = 64 << 10;

std::string form_of(const NamedBuffer& buffer) {
  return buffer.form + " (" + std::to_string(buffer.bytes) + " bytes)";
}

}  // namespace

std::vector<StatePiece> pieces_of(std::span<const NamedBuffer> buffers) {
  std::vector<StatePiece> pieces;
  std::size_t room = 0;
  bool is_of_first = false;
  for (std::size_t number = 0; number < buffers.size(); ++number) {
    if (std::exchange(is_of_first, buffers[number].is_of_first) != buffers[number].is_of_first) room = 0;
    for (std::size_t offset = 0; offset < buffers[number].bytes;) {
      if (room == 0 || pieces.back().size() == kPieceParts) {
        pieces.emplace_back();
        room = kPieceBytes;
      }
      const std::size_t count = std::min(room, buffers[number].bytes - offset);
      pieces.back().push_back({number, offset, count});
      offset += count;
      room -= count;
    }
  }
  return pieces;
}

std::uint64_t hash_of(const StatePiece& piece, std::span<const NamedBuffer> buffers) {
  std::uint64_t hash = 0;
  for (const StatePart& part : piece) hash = hash_bytes({buffers[part.buffer].data + part.offset, part.bytes}, hash);
  return hash;
}

std::vector<std::byte> table_of(std::span<const NamedBuffer> buffers) {
  ByteWriter out;
  for (const NamedBuffer& buffer : buffers) {
    out.text(buffer.name);
    out.text(form_of(buffer));
  }
  return out.take();
}

std::string difference_of(std::span<const NamedBuffer> mine, std::span<const std::byte> theirs) {
  std::vector<std::string> order;
  std::map<std::string, std::string> there;
  for (ByteReader in(theirs); in.left() > 0;) {
    order.push_back(in.text(kMostText));
    there[order.back()] = in.text(kMostText);
  }
  std::map<std::string, std::string> here;
  for (const NamedBuffer& buffer : mine) {
    here[buffer.name] = form_of(buffer);
    const auto found = there.find(buffer.name);
    if (found == there.end()) return buffer.name + " is " + form_of(buffer) + " here and missing there";
    if (found->second != form_of(buffer))
      return buffer.name + " is " + form_of(buffer) + " here and " + found->second + " there";
  }
  for (const std::string& name : order) {
    if (!here.contains(name)) return name + " is missing here and " + there[name] + " there";
  }
  const bool is_same = mine.size() == order.size() &&
                       std::ranges::equal(mine, order, {}, [](const NamedBuffer& one) { return one.name; });
  return is_same ? "" : "the buffers have another order";
}

}  // namespace horo
