// Rows of bytes of all ranks: what saves and loads agree by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "horo/session.h"

namespace horo::checkpoint {

using ByteRow = std::vector<std::byte>;

// The row of each rank that takes part, by rank, the same on all of them. session: null: that of this process alone.
// Blocks. Throws PeerLost or ShutDown.
std::vector<ByteRow> gather_rows(Session* session, const std::string& what, const ByteRow& mine);

// The id of this rank among all that the job has had; 0 without a session.
std::uint32_t member_of(Session* session);

}  // namespace horo::checkpoint
