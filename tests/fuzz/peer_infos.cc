// The peer info of another rank is accepted only if it is, byte for byte, one that a rank of this version writes.
#include <stdexcept>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "ring/bootstrap/peer_info.h"
#include "tests/fuzz/targets.h"

namespace horo {
namespace {

// A valid peer info with some bytes changed, or random bytes.
std::vector<std::byte> card_from(FuzzInput& input) {
  if (input.below(4) == 0) return {input.rest().begin(), input.rest().end()};
  std::vector<std::byte> card = encode(make_peer_info("127.0.0.1:" + std::to_string(input.number(2))));
  while (!input.is_empty()) {
    const std::size_t at = input.below(card.size() + 1);
    if (at == card.size()) {
      card.push_back(static_cast<std::byte>(input.number(1)));
    } else {
      card[at] ^= static_cast<std::byte>(input.number(1));
    }
  }
  return card;
}

}  // namespace

bool fuzz_peer_infos(std::span<const std::byte> bytes) {
  FuzzInput input(bytes);
  const std::vector<std::vector<std::byte>> blobs = {encode(make_peer_info("127.0.0.1:1")), card_from(input)};
  try {
    HORO_CHECK(encode(read_peer_infos(blobs)[1]) == blobs[1]);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  } catch (const PeerLost& error) {
    HORO_CHECK(error.origin() == 1);
    return false;
  }
}

}  // namespace horo
