// ShardedGroup: all_reduces whose results stay in the memory of the members that sum them, as an elastic job holds them
// until they are committed. It needs members that share memory: see Group::sharded() and shard_bytes().
#pragma once

#include <cstddef>

#include "ring/collective.h"
#include "ring/sharded_result.h"

namespace horo {

// The thread that runs the group's collectives, except where a function says more.
class ShardedGroup {
 public:
  // The bytes of this member's shard of the result of an all_reduce; 0: reduce_to_shards() does not run this one. Zero
  // on all members or on none.
  virtual std::size_t shard_bytes(const Collective& collective) const = 0;
  // Memory for a shard; null data if there is none. It may be freed while other members read it. Any thread.
  virtual Allocation allocate_shard(std::size_t bytes) = 0;
  // As Group::run(), but out is not written: each member writes its shard to `shard`, of shard_bytes(), and `result`
  // has all members' shards. They stay readable, also after the death of their members, until the next call that all
  // members have entered. Returns false on all members, without a result, if a member gave null.
  virtual bool reduce_to_shards(const Collective& collective, Buffer shard, ShardedResult& result) = 0;

 protected:
  ~ShardedGroup() = default;
};

}  // namespace horo
