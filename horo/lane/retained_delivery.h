// RetainedDelivery: the results of an elastic job. A collective leaves its inputs intact, so that it can run again
// without a lost rank: its result is held apart until it is committed, and then copied to the callers' memory.
// docs/protocol.md has the protocol.
#pragma once

#include "horo/lane/commits.h"
#include "horo/lane/delivery.h"

namespace horo {

class RetainedDelivery final : public Delivery {
 public:
  RetainedDelivery(const DeliveryContext& context, Counters& counters)
      : context_(context), commits_(context, counters) {}

  bool is_bucket(const Job& job, const Participants& participants, const Collective& collective) const override;
  bool is_packed(std::span<const Item> items, const Collective& like) const override;
  JobResult reduce_bucket(const Job& job, const Participants& participants, Collective collective) override;
  ItemList outputs(const Job& job, const Participants& participants, JobResult& result) override;
  void deliver(const Job& job, const Participants& participants, const Collective& collective,
               JobResult result) override;
  void end(const Ending& ending) override;
  std::uint64_t completed() const override { return commits_.completed(); }
  void settle(const std::function<bool(const Commit&)>& is_done) override { commits_.settle(is_done); }
  void settle_ending(const Ending& ending) override;

 private:
  std::size_t shard_bytes(const Job& job, const Participants& participants, const Collective& collective) const;
  bool reduce_to_shards(const Job& job, const Participants& participants, Collective collective, JobResult& result);

  const DeliveryContext context_;
  Commits commits_;
};

}  // namespace horo
