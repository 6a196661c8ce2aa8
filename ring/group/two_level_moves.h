// TwoLevelMoves: an all_gather or reduce_scatter of members on several hosts, some of which share a host. Blocks are
// cut into cells, each of which crosses once between two hosts (HostCells): in an all_gather from its owner to one
// member of the other host, which spreads it in shared memory; in a reduce_scatter as the partial sum of a host, from
// the member that has summed it to the owner. Cells are spread and summed while others travel.
//
// Sums are canonical if each host's contributors are a subtree of the canonical tree. Partial sums of 16- and 8-bit
// floats travel as float32, so a reduce_scatter runs so only where it sends fewer bytes.
//
// Agreement and mismatches are as in TwoLevel. The key hash of messages covers everything in which the hosts could
// differ. Between a member and each other host a message goes both ways, if need be an empty one. So every member of
// every host receives a message of a host that differs.
#pragma once

#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "ring/group/block_exchange.h"

namespace horo {

// Owned by the thread that starts the group's collectives.
class TwoLevelMoves {
 public:
  // `hosts`: by member. `memory`: of the members of this host; null if this member is alone on it. Outlives this.
  TwoLevelMoves(const GroupContext& context, std::vector<int> hosts, ShmSync* memory);

  // Equal on all members. `hosts` have levels (TwoLevel::has_levels()). Few bytes go by messages, because their time is
  // that of waits, unless `at_any_size`.
  static bool takes(const Collective& collective, const std::vector<int>& hosts, bool at_any_size);

  // As TwoLevel::run().
  void run(const Collective& collective);

 private:
  using Key = std::tuple<CollectiveKind, DType, ReduceOp, Order, std::vector<std::size_t>, std::vector<std::int64_t>>;

  void plan(const Collective& c);
  void plan_sums(const HostsOfGroup& hosts, const Collective& c);
  void exchange(const Collective& c, std::byte* out, bool is_own_out);
  void arrive(const Collective& c, std::byte* out, bool is_own_out);
  void run(BlockExchange& exchange, const Collective& c, CellMessages& messages) const;
  void exchange_empty(const Collective& c, CellMessages& messages) const;
  void send_mismatch(const Collective& c) const;
  bool sends(const HostCells::Link& link, const Collective& c) const;

  const GroupContext context_;
  const std::vector<int> hosts_;
  ShmSync* const memory_;
  Key planned_;
  std::optional<BlockPlan> plan_;
};

}  // namespace horo
