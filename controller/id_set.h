// Sets of tensor ids and plan ids on the wire: (first id, byte count, bitmap), or a list where that is shorter.
#pragma once

#include <cstdint>
#include <vector>

#include "horo/base/wire.h"

namespace horo {

// Sorts the ids. No id may occur twice.
void write_ids(ByteWriter& out, std::vector<std::uint32_t>& ids);

// Returns the ids in ascending order. Throws ProtocolError for an id of `limit` or more, before it allocates memory for
// it.
std::vector<std::uint32_t> read_ids(ByteReader& in, std::uint32_t limit);

}  // namespace horo
