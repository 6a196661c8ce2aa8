// Buckets: contiguous memory for the tensors of one collective. One bucket is on the wire while another is packed.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "horo/base/counters.h"
#include "horo/lane/job.h"
#include "ring/group.h"

namespace horo {

// Memory that was given back, for later use. One thread.
class SpareMemory {
 public:
  // The smallest one that is large enough, but not one that is much larger; null data: none.
  Allocation take(std::size_t bytes);
  // Of more than `most`, returns the one that was not taken for the longest time: it is to be freed.
  Allocation give_back(Allocation memory, std::size_t most);

  static constexpr std::size_t kSmallBytes = 64 << 10;

 private:
  std::vector<Allocation> spare_;
};

// Whether an all_reduce of these tensors, like this one, uses their memory as it is, in pieces. The thread that runs
// the group's collectives.
bool takes_pieces(std::span<const Item> items, const Collective& like, const Group& group);

// Only the thread that runs the lane's tasks. Group and counters outlive it.
class Buckets {
 public:
  // keeps_spare: memory that is given back, or too small, is kept for take(): in an elastic job.
  Buckets(Group& group, Counters& counters, bool keeps_spare = false)
      : group_(group), counters_(counters), keeps_spare_(keeps_spare) {}

  // Packs a known plan that is not released yet and is not contiguous in memory.
  void prepack(std::span<const Item> items);
  // Sets the buffers of a collective on the tensors of the job, valid until unpack(): their pieces where the group
  // takes them and packing does not pay, else their own memory if it is contiguous, else a copy.
  void place(const Job& job, const Group& group, Collective& collective);
  // Copies the results out of the copy that place() made last, if any.
  void unpack(std::span<const Item> items);
  // Instead of unpack(): the copy is not needed any more.
  void drop_packed();

  // The tensors of the job packed into memory that the caller keeps until give_back().
  Allocation take_packed(const Job& job);
  // Memory of at least this size, of undefined content; null for no bytes.
  Allocation take(std::size_t bytes);
  void give_back(Allocation memory);
  // The same for a shard of a result, of a group that is sharded: see ShardedGroup::allocate_shard().
  Allocation take_shard(std::size_t bytes);
  void give_back_shard(Allocation memory);
  // All memory of buckets that nothing uses any more.
  void take_memory(Buckets& unused);

 private:
  struct Bucket {
    Allocation memory;
    std::shared_ptr<Work> packed;  // first Work of the known plan that is packed in it
  };

  Bucket& claim(std::size_t bytes);
  Bucket& bucket_of(const Job& job);
  void pack(Bucket& bucket, std::span<const Item> items);

  Group& group_;
  Counters& counters_;
  const bool keeps_spare_;
  std::deque<Bucket> buckets_;
  SpareMemory spare_, shards_;
  std::size_t taken_shards_ = 0, most_shards_ = 0;  // now, and at once so far
  std::vector<Piece> pieces_;                       // of place(), as the next
  Bucket* current_ = nullptr;                       // null: no copy; no bucket is claimed between place() and unpack()
};

}  // namespace horo
