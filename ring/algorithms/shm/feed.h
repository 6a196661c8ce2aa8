// ShmFeed: one host's side of an all_reduce of several hosts. For each slice of the tensor every member sums its range
// of the data of all members of its host. The partial sum is the input of a schedule that the member runs with members
// of other hosts (SliceFeed); the schedule's result goes to all members of the host. There are three data paths, which
// may differ from host to host:
//
//   inline     Up to a few KiB. Each member writes its data into its arrival flag or an inline buffer.
//   in place   Buffers in arenas. Data are summed from the buffers and results are written to all of them. Members wait
//              for each other once more at the end.
//   staged     Memory of the caller. Each member copies the other members' ranges into its slice buffers one slice
//              ahead, and reads their results from theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "horo/base/shard.h"
#include "ring/algorithms/pieces.h"
#include "ring/algorithms/schedule_run.h"
#include "ring/algorithms/shm/sums.h"
#include "ring/algorithms/shm/sync.h"
#include "ring/algorithms/slices.h"

namespace horo {

// The part of one host in a collective of several hosts. Vectors are by member of the host.
struct HostShare {
  const Collective& c;
  const Slices& slices;
  std::vector<Part> chunks;                // that the member sums, of every slice
  std::vector<std::int64_t> contributors;  // ids; kAbsent

  // Ranges of the tensor, in bytes: the part of a slice that a member sums, and the whole slice.
  Shard part(int member, std::size_t slice) const;
  Shard whole(std::size_t slice) const;
};

// Owned by the thread that starts the group's collectives.
class ShmFeed final : public SliceFeed {
 public:
  // `sync`: of the members of this host; outlives the feed.
  explicit ShmFeed(ShmSync& sync) : sync_(sync) {}

  static constexpr std::size_t kSliceBytes = 4 * ShmSync::kSliceBufferBytes;
  static constexpr std::size_t kSlots = 4;  // slices in flight together
  static bool is_inline(std::size_t bytes) { return bytes <= ShmSync::kInlineBytes; }

  // To be called before the first slice and after the last one. `share` lives until the end. Block; throw what
  // Transport::wait() throws. A Mismatch of begin() is thrown on all members of the host.
  void begin(const HostShare& share);
  void end();
  // To be called instead of end() after a Mismatch of the schedule. The other members of the host then throw a Mismatch
  // too. Blocks until none of them reads or writes this member's memory.
  void give_up();

  void fill_input(std::size_t slice, std::byte* in) override;
  void take_output(std::size_t slice, const std::byte* out) override;

 private:
  enum class DataPath { kInline, kInPlace, kStaged };
  static constexpr std::uint64_t kBuffersOfSlice = kSliceBytes / ShmSync::kSliceBufferBytes;
  static constexpr std::uint64_t kSlicesInBuffers = ShmSync::kSliceBuffers / kBuffersOfSlice;

  const Collective& c() const { return share_->c; }
  std::byte* buffer_of(int member, std::size_t slice, Shard part) const;
  void choose_path(std::size_t bytes);
  void stage(std::size_t slice);
  void collect(std::size_t slice);

  ShmSync& sync_;
  ShmSums sums_;
  Pieces pieces_;
  const HostShare* share_ = nullptr;  // of the collective that has begun
  DataPath path_ = DataPath::kStaged;
  std::vector<std::byte*> buffers_;  // in place: by member
  std::uint64_t first_ = 0;          // step of the collective's first slice
};

}  // namespace horo
