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
  OpenPart first;                       // of the parts of this rank: locked until the end of its writing
  std::vector<bool> shows_death;        // by rank: its locks are seen here
  std::uint32_t keep = 0;               // 0: all
  std::chrono::milliseconds timeout{};  // in which a rank waits for others, after the last sign of one of them
  std::shared_ptr<RunTable> run;        // rank 0: tells `horo run`; null: none has started this rank
  int local_rank = 0;                   // its place there
};

// The bytes of this rank in memory, as its parts have them; each part begins at a multiple of kStagedAlignment.
inline constexpr std::uint64_t kStagedAlignment = 4096;
std::vector<std::uint64_t> staged_offsets(const SavePlan& plan);
std::uint64_t staged_bytes(const SavePlan& plan);

// Makes the first part of this rank, and locks it: before the ranks agree that the save begins. The others are made
// when they are written, so that a rank has few files open.
OpenPart open_first_part(const SaveFolder& save, std::span<const DealtPart> parts, std::size_t rank);

// Writes and publishes; returns when the checkpoint is there. Throws std::runtime_error: why there is none. GivenUp.
void run_save(SavePlan& plan, std::span<const std::byte> staged, SaveControl& control);
// Tells the other ranks that this rank does not write its parts.
void tell_failure(const SavePlan& plan, const std::string& reason) noexcept;

}  // namespace horo::checkpoint
