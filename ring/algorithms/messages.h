// What runs over a Transport shares this: who takes part, how a message is named, where scratch memory comes from.
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

// Memory for messages in flight, kept from call to call. Any thread.
class ScratchPool {
 public:
  using Memory = std::vector<std::byte>;

  // Goes back to the pool with its end.
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

  Lease take(std::size_t bytes);

 private:
  void give_back(std::unique_ptr<Memory> memory) noexcept;

  Mutex mutex_;
  std::vector<std::unique_ptr<Memory>> free_ GUARDED_BY(mutex_);
};

constexpr std::size_t kMostSlots = 16;

// The members of a group, and what they agreed on once.
struct GroupContext {
  Transport& transport;
  const std::vector<int>& members;  // world ranks
  int index;                        // of this rank among them
  std::size_t segment_bytes;
  ScratchPool& scratch;
  std::size_t most_slots = kMostSlots;  // slices that are under way together; equal on all members

  int size() const { return static_cast<int>(members.size()); }
};

// The messages of one collective, between members by index.
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

// The `index`-th of `parts` pieces of a shard, in elements of the whole buffer.
inline Shard piece_of(Shard shard, std::size_t parts, std::size_t index) {
  const Shard inside = shard_of(shard.size, static_cast<int>(parts), static_cast<int>(index));
  return {shard.begin + inside.begin, inside.size};
}

inline std::size_t pieces_for(std::size_t bytes, std::size_t piece_bytes) {
  return (bytes + piece_bytes - 1) / piece_bytes;
}

// Where a member's contribution is absent.
inline bool is_absent(const Collective& collective, int member) {
  return collective.contributors[static_cast<std::size_t>(member)] == kAbsent;
}
inline Scaling scaling_of(const Collective& c) {
  return {c.prescale, c.postscale, c.op == ReduceOp::kAverage ? c.divisor : 1.0};
}

void barrier(const GroupContext& context, const Collective& collective);

// Throws std::invalid_argument, naming Collective::what, if the collective contradicts itself.
void check(const Collective& collective, int size, int index);

// What a member must bring and gets, in elements; its buffers may be longer.
struct BufferElements {
  std::size_t in = 0;
  std::size_t out = 0;
};
BufferElements elements_of_buffers(const Collective& collective, int size, int index);

// Kinds whose output lies elsewhere than the same elements of the input cannot be run in place. What is gathered can
// where it lies at its place already, which costs no copy.
bool needs_own_output(const GroupContext& context, const Collective& collective);

}  // namespace horo
