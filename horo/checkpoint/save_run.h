// A save while it is written: what each rank's thread does from the start to the end.
//
// Ranks exchange no messages meanwhile: training has the session. When its parts are on the disk, a rank puts a file
// with their checksums into the folder, or one that says why it failed. Rank 0 waits for those files, writes the index
// and publishes; the others see the folder get its final name, or disappear. A rank that dies loses the locks of its
// parts, which shows the others that it has died.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "horo/base/run_table.h"
#include "horo/checkpoint/deal.h"
#include "horo/checkpoint/folder.h"
#include "horo/checkpoint/part_writer.h"
#include "horo/checkpoint/save_control.h"

namespace horo::checkpoint {

// What the ranks have agreed on, and what of it is of this rank.
struct SavePlan {
  SaveFolder save;
  CheckpointIndex head;                   // without tensors and parts
  std::vector<CheckpointTensor> tensors;  // without memory
  std::vector<DealtPart> parts;           // of all ranks
  std::size_t rank = 0;
  std::size_t ranks = 1;
  std::vector<OpenPart> open;           // of this rank, as in parts
  std::vector<bool> shows_death;        // by rank: its locks are seen here
  std::uint32_t keep = 0;               // 0: all
  std::chrono::milliseconds timeout{};  // rank 0: for the parts of the others, after the last one that came
  std::shared_ptr<RunTable> run;        // rank 0: tells `horo run`; null: none has started this rank
  int local_rank = 0;                   // its place there
};

// The bytes of this rank in memory, as its parts have them; each part begins at a multiple of kStagedAlignment.
inline constexpr std::uint64_t kStagedAlignment = 4096;
std::vector<std::uint64_t> staged_offsets(const SavePlan& plan);
std::uint64_t staged_bytes(const SavePlan& plan);

// Makes the parts of this rank, and locks them: before the ranks agree that the save begins.
std::vector<OpenPart> open_parts(const SaveFolder& save, std::span<const DealtPart> parts, std::size_t rank);
// Afterwards, when all have done so: of which ranks this one sees the locks.
std::vector<bool> seen_locks(const SaveFolder& save, std::span<const DealtPart> parts, std::size_t ranks);

// Writes and publishes; returns when the checkpoint is there. Throws std::runtime_error: why there is none. GivenUp.
void run_save(SavePlan& plan, std::span<const std::byte> staged, SaveControl& control);
// Tells the other ranks that this rank does not write its parts.
void tell_failure(const SavePlan& plan, const std::string& reason) noexcept;

}  // namespace horo::checkpoint
