// Saves: what the ranks of a job agree on before they write a checkpoint.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "horo/checkpoint/deal.h"
#include "horo/checkpoint/saver.h"
#include "horo/session.h"

namespace horo::checkpoint {

struct SaveOptions {
  std::string path;         // the folder to write: it is there when all of it is on the disk
  std::string rest = "{}";  // JSON that the index carries; that of rank 0 counts
  std::uint64_t step = 0;
  std::uint64_t seed = 0;
  std::uint32_t keep = 0;  // so many folders "step-*" beside it stay, of this step and before; 0: all
  bool locks = false;      // rank 0 holds the lock of the parent folder until the saver's end: one job writes to it
};

// Collective of the world: all ranks call it with the same tensors in the same order; the ranges of sharded ones have
// each row once. session: null: this process alone. True: the save has begun, and the caller gives its parts
// (Saver::part, take, start). False: skipped on all ranks, as one of them still writes the save before. Blocks. Throws
// std::invalid_argument (tensors, options) or std::runtime_error (the folder cannot be written), the same on all ranks,
// and nothing is begun; PeerLost; ShutDown.
bool begin_save(Saver& saver, Session* session, const SaveOptions& options,
                const std::vector<CheckpointTensor>& tensors);

// This rank cannot take part in the save that the others begin, for the reason `why`: all ranks throw
// std::invalid_argument with it. Collective of the world; blocks.
[[noreturn]] void refuse_save(Session* session, const std::string& why);

// The whole of a save, from the data of the tensors. Returns when the checkpoint is there.
void save(Session* session, const SaveOptions& options, const std::vector<CheckpointTensor>& tensors);

}  // namespace horo::checkpoint
