// Loads: the ranks of a job read a checkpoint together.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "horo/checkpoint/deal.h"
#include "horo/checkpoint/reader.h"
#include "horo/session.h"

namespace horo::checkpoint {

// Writes rows of the checkpoint to CheckpointTensor::data. Collective of the world: all ranks open the same checkpoint,
// and ask for the same tensors; their ranges may differ. session: null: this process alone. Ranks of one host all read
// all files, by its page cache; of several hosts each rank reads a part of the blocks and gives it to the others. So a
// disk or a file server gives each byte once. All bytes are verified, in blocks of 4 MiB. verifies_first: all blocks,
// each by one rank, before the first byte is written to a tensor whose memory is not new on all ranks, which takes up
// to 1.3 times as long; else, after an error of the files, some tensors have bytes of the checkpoint, damaged ones
// among them. An alias gets no bytes of its own. Blocks. Throws, the same on all ranks: std::invalid_argument (the
// checkpoint has no such tensor; nothing was written), std::runtime_error (a file is damaged or cannot be read);
// PeerLost; ShutDown.
void load(Checkpoint& checkpoint, Session* session, const std::vector<CheckpointTensor>& tensors,
          bool verifies_first = true);

// This rank cannot take part in the load that the others begin, for the reason `why`: all ranks throw
// std::invalid_argument with it. Collective of the world; blocks.
[[noreturn]] void refuse_load(Session* session, const std::string& why);

// Reads and verifies everything in this process alone: headers and blocks. Throws as the reader. After each block it
// calls `progress` with the bytes that were read, unless it is empty.
void verify(Checkpoint& checkpoint, const std::function<void(std::uint64_t bytes)>& progress = {});

}  // namespace horo::checkpoint
