// InPlaceDelivery: results are written to the callers' memory at once, and Works end with their collective.
#pragma once

#include "horo/lane/delivery.h"

namespace horo {

class InPlaceDelivery final : public Delivery {
 public:
  explicit InPlaceDelivery(const DeliveryContext& context) : context_(context) {}

  bool is_bucket(const Job& job, const Participants& participants, const Collective& collective) const override;
  bool is_packed(std::span<const Item> items, const Collective& like) const override;
  JobResult reduce_bucket(const Job& job, const Participants& participants, Collective collective) override;
  ItemList outputs(const Job& job, const Participants& participants, JobResult& result) override;
  void deliver(const Job& job, const Participants& participants, const Collective& collective,
               JobResult result) override;
  void end(const Ending& ending) override { end_all(context_.tensor_table, ending); }

 private:
  void deliver_on_device(const ItemList& items, DeviceResult result);

  const DeliveryContext context_;
};

}  // namespace horo
