#include "horo/lane/in_place_delivery.h"

#include <utility>

namespace horo {

bool InPlaceDelivery::is_bucket(const Job& job, const Participants& /*participants*/,
                                const Collective& /*collective*/) const {
  return job.items->size() > 1;
}

bool InPlaceDelivery::is_packed(std::span<const Item> items, const Collective& like) const {
  return !takes_pieces(items, like, *context_.groups.all());
}

JobResult InPlaceDelivery::reduce_bucket(const Job& job, const Participants& participants, Collective collective) {
  context_.buckets.place(job, participants.group, collective);
  context_.recorder.mark(Phase::kPack);
  participants.group.run(collective);
  context_.recorder.mark(Phase::kTransfer);
  context_.buckets.unpack(*job.items);
  context_.recorder.mark(Phase::kUnpack);
  return {job.items};
}

ItemList InPlaceDelivery::outputs(const Job& job, const Participants& /*participants*/, JobResult& /*result*/) {
  return job.items;
}

void InPlaceDelivery::deliver_on_device(const ItemList& items, DeviceResult result) {
  DeviceResults& results = context_.devices->results();
  if (result.fits) return results.deliver(context_.tensor_table, items, std::move(result));
  context_.devices->wait_for_results();
  results.end_on_host(context_.tensor_table, items, std::move(result));
}

// A retired tensor may be submitted again at once, so it is retired before its Work is finished. Nothing may throw
// between the two, because the tensor table does not hold the Work any more.
void InPlaceDelivery::deliver(const Job& job, const Participants& participants, const Collective& collective,
                              JobResult result) {
  if (result.on_device) return deliver_on_device(job.items, std::move(*result.on_device));
  if (collective.kind == CollectiveKind::kBarrier) {
    participants.group.run(collective);
    context_.recorder.mark(Phase::kTransfer);
  }
  result.failure ? context_.staging.drop(*job.items) : context_.staging.copy_out(*job.items, result.outcome);
  context_.tensor_table.retire(*job.items);
  if (job.items->size() > 1) return Work::finish_all(*job.items);
  Work& work = *job.first().work;
  if (result.failure) return work.fail(std::move(result.failure));
  work.finish(std::move(result.outcome));
}

}  // namespace horo
