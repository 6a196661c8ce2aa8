// ShmFeed: one host's side of a collective of several hosts. Its members meet in their memory: each sums its part of
// every slice of what all of them brought, for the schedule that it runs with its like on other hosts, and passes what
// comes out on to all.
//
//   flat       a few KiB: each member writes what it brings beside its mark
//   in place   what lies in arenas is summed from there, and results are written to all buffers: they meet twice
//   staged     the callers' own memory, slice by slice: each lays the others' parts into its stages before they are
//              wanted, and takes their results from theirs
//
// Which of them it is may differ from host to host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "horo/base/shard.h"
#include "ring/algorithms/pieces.h"
#include "ring/algorithms/schedule_run.h"
#include "ring/algorithms/shm/sums.h"
#include "ring/algorithms/shm/sync.h"
#include "ring/algorithms/slices.h"

namespace horo {

// Of a collective on several hosts, what one of them does.
struct HostShare {
  const Collective& c;
  const Slices& slices;
  std::vector<Part> chunks;                // by member of the host: those of every slice that it sums
  std::vector<std::int64_t> contributors;  // by member of the host

  // Of the tensor, in bytes.
  Shard part(int member, std::size_t slice) const;
  Shard whole(std::size_t slice) const;
};

// The thread that starts the group's collectives alone.
class ShmFeed final : public SliceFeed {
 public:
  // `host`: the members of this host; they meet on their boards, see ShmSync.
  ShmFeed(const Party& host, std::shared_ptr<ShmArenas> arenas, Allocation mine,
          const std::vector<std::int64_t>& boards, WaitPatience patience);

  void set_past_caches(const std::string& setting) { sync_.set_past_caches(setting); }

  static constexpr std::size_t kSliceBytes = 4 * ShmSync::kStageBytes;
  static constexpr std::size_t kSlots = 4;  // slices under way together: two less than there are stages for
  static bool is_flat(std::size_t bytes) { return bytes <= ShmSync::kFlatBytes; }

  // Before the first slice and behind the last one. Throw what Transport::wait() throws; a Mismatch of begin() on all
  // members of the host alike.
  void begin(const HostShare& share);
  void end();
  // Instead of end(), after a Mismatch of the schedule: tells the other members, who then throw one as well, and waits
  // until none of them touches this one's memory.
  void give_up();

  void bring(std::size_t slice, std::byte* in) override;
  void take(std::size_t slice, const std::byte* out) override;

 private:
  using Work = ShmSync::Work;
  enum class Way { kFlat, kInPlace, kStaged };
  static constexpr std::uint64_t kStagesOfSlice = kSliceBytes / ShmSync::kStageBytes;
  static constexpr std::uint64_t kLots = ShmSync::kStages / kStagesOfSlice;

  const Collective& c() const { return share_->c; }
  std::byte* lot(int member, std::size_t slice) const;
  std::byte* in_lot(int member, std::size_t slice, Shard part) const;
  void find_places(std::size_t bytes);
  void stage(std::size_t slice);
  void collect(std::size_t slice);

  ShmSync sync_;
  ShmSums sums_;
  Pieces pieces_;
  const HostShare* share_ = nullptr;  // of the collective that has begun
  Way way_ = Way::kStaged;
  std::vector<std::byte*> places_;  // in place: by member
  std::uint64_t first_ = 0;         // step of the collective's first slice
  std::uint64_t steps_ = 0;         // that all collectives had
};

}  // namespace horo
