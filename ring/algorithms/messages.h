// Shared parts of the algorithms over a Transport: the members of a group, message tags and scratch memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "horo/base/mutex.h"
#include "horo/base/shard.h"
#include "ring/group.h"
#include "ring/reduce/reduce.h"

namespace horo {

// Memory for messages in flight, which is kept for later messages. Any thread.
class ScratchPool {
 public:
  using Memory = std::vector<std::byte>;

  // Memory that belongs to the caller. The destructor returns it to the pool.
  class Lease {
   public:
    Lease(ScratchPool& pool, std::unique_ptr<Memory> memory) : pool_(pool), memory_(std::move(memory)) {}
    ~Lease() { pool_.give_back(std::move(memory_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    std::span<std::byte> part(std::size_t begin, std::size_t bytes) const {
      return std::span(*memory_).subspan(begin, bytes);
    }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Memory> memory_;
  };

  // Returns at least `bytes` bytes of memory with undefined contents.
  Lease take(std::size_t bytes);

 private:
  void give_back(std::unique_ptr<Memory> memory) noexcept;

  Mutex mutex_;
  std::vector<std::unique_ptr<Memory>> free_ GUARDED_BY(mutex_);
};

constexpr std::size_t kMostSlots = 16;

// The context of a group's algorithms: members, this rank's index among them, and shared resources. Transport, members
// and scratch outlive it.
struct GroupContext {
  Transport& transport;
  const std::vector<int>& members;  // world ranks
  int index;                        // of this rank among them
  // Bytes of a slice's part of a chunk; equal on all members. The default of 256 KiB takes 4.1 ms for 16 MiB over TCP,
  // 64 KiB takes 4.5 ms (64 MiB: 15 and 20 ms), and 512 KiB is not faster.
  std::size_t segment_bytes;
  ScratchPool& scratch;
  std::size_t most_slots = kMostSlots;  // slices that are in flight together; equal on all members

  int size() const { return static_cast<int>(members.size()); }
};

// Posts the messages of one collective. Members are given by index; `number` distinguishes the messages between two
// members.
class Messenger {
 public:
  using Op = Transport::Op;

  Messenger(const GroupContext& context, const Collective& collective) : context_(context), collective_(collective) {}

  Op send(int member, std::uint32_t number, std::span<const std::byte> out) const;
  Op receive(int member, std::uint32_t number, std::span<std::byte> in) const;
  void wait(std::span<const Op> ops) const { context_.transport.wait(ops, collective_.deadline); }

 private:
  Tag tag(std::uint32_t number) const;
  const GroupContext& context_;
  const Collective& collective_;
};

// Piece `index` of a shard that is cut into `parts` pieces, in elements of the whole buffer.
inline Shard piece_of(Shard shard, std::size_t parts, std::size_t index) {
  const Shard inside = shard_of(shard.size, static_cast<int>(parts), static_cast<int>(index));
  return {shard.begin + inside.begin, inside.size};
}

inline std::size_t pieces_for(std::size_t bytes, std::size_t piece_bytes) {
  return (bytes + piece_bytes - 1) / piece_bytes;
}

// Whether the member has no value for this reduction.
inline bool is_absent(const Collective& collective, int member) {
  return collective.contributors[static_cast<std::size_t>(member)] == kAbsent;
}
inline Scaling scaling_of(const Collective& c) {
  return {c.prescale, c.postscale, c.op == ReduceOp::kAverage ? c.divisor : 1.0};
}

// Blocks until all members have called it.
void barrier(const GroupContext& context, const Collective& collective);

// Throws std::invalid_argument, naming Collective::what, if the collective is inconsistent.
void check(const Collective& collective, int size, int index);

// The elements that a member's buffers must hold at least.
struct BufferElements {
  std::size_t in = 0;
  std::size_t out = 0;
};
BufferElements elements_of_buffers(const Collective& collective, int size, int index);

// Whether the collective needs a temporary output because its input and output overlap. Reductions to all members,
// reduce and broadcast run in place. all_gather and gather run in place where the input lies at its own place in the
// output.
bool needs_own_output(const GroupContext& context, const Collective& collective);

}  // namespace horo
