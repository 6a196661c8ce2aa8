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

// A retired tensor may be submitted again at once, so it is retired before its Work is finished or issued; what is
// enqueued for it then follows on the stream. Nothing may throw between the two, because the tensor table does not hold
// the Work any more.
void InPlaceDelivery::deliver(const Job& job, const Participants& participants, const Collective& collective,
                              JobResult result) {
  if (result.on_device) {
    context_.tensor_table.retire_issued(job.items);
    return Work::issue_all(*job.items, result.on_device->done);
  }
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
