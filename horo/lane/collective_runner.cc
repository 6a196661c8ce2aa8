#include "horo/lane/collective_runner.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "horo/base/fail_point.h"
#include "horo/lane/in_place_delivery.h"
#include "horo/lane/retained_delivery.h"

namespace horo {
namespace {

constexpr std::size_t kShortBytes = 64 << 10;
constexpr std::chrono::milliseconds kLeastEndPatience{10'000};  // an abort takes about one

bool is_at_most(const std::vector<Item>& items, std::size_t bytes) {
  for (const Item& item : items) {
    if (item.bytes > bytes) return false;
    bytes -= item.bytes;
  }
  return true;
}

bool is_elastic(const Config& config) {
  return config.min_np > 0;
}

std::unique_ptr<DeviceRunner> make_devices(const LaneContext& context, const std::vector<int>& ranks,
                                           JobRecorder& recorder, StopSignal& stop) {
  if (context.turns == nullptr) return nullptr;
  const bool retains = is_elastic(context.config);
  return std::make_unique<DeviceRunner>(
      DeviceRunnerContext{context.config, context.counters, context.transport, *context.turns, recorder, stop, retains},
      ranks);
}

std::unique_ptr<Delivery> make_delivery(const LaneContext& context, const DeliveryContext& objects) {
  if (!is_elastic(context.config)) return std::make_unique<InPlaceDelivery>(objects);
  return std::make_unique<RetainedDelivery>(objects, context.counters);
}

bool is_at_rest(const DeviceRunner* devices) {
  try {
    return devices == nullptr || devices->is_at_rest();
  } catch (const std::exception&) {  // the device has failed
    return false;
  }
}

}  // namespace

CollectiveRunner::CollectiveRunner(const LaneContext& context, Members members, std::uint32_t channel)
    : context_(context),
      channel_(channel),
      is_shared_memory_(context.config.local_size == context.config.size && members.arenas != nullptr),
      groups_(context.transport, std::move(members), context.config, context.counters),
      buckets_(*groups_.all(), context.counters, is_elastic(context.config)),
      staging_(groups_.all(), stop_, [this] { return is_at_rest(devices_.get()); }),
      recorder_({context.timeline, context.times, is_elastic(context.config)}),
      devices_(make_devices(context, groups_.members().ranks, recorder_, stop_)),
      delivery_(
          make_delivery(context, {context.tensor_table, groups_, buckets_, staging_, recorder_, devices_.get()})) {}

// Members that share memory reach a small collective at about the same time. Code of users (custom operations, codecs)
// runs in the lane's thread only.
bool CollectiveRunner::is_short(const Job& job) const {
  const TensorSpec& spec = *job.first().spec;
  const bool waits_for_devices = devices_ && devices_->holds_results();
  const bool is_long = Staging::needs(job) || waits_for_devices || spec.op == ReduceOp::kCustom || runs_by_tensor(spec);
  if (!is_shared_memory_ || is_long) return false;
  return is_at_most(*job.items, kShortBytes);
}

void CollectiveRunner::run(const Job& job) {
  recorder_.begin(job);
  const Participants participants = participants_of(job);
  if (!Staging::needs(job)) {
    run(job, participants);
    return recorder_.end(job);
  }
  has_used_devices_.store(true, std::memory_order_relaxed);
  if (!run_on_device(job, participants)) {
    const Job on_host = staging_.copy_in(job, participants);
    recorder_.mark(Phase::kPack);
    run(on_host, participants);
  }
  recorder_.end(job);
}

bool CollectiveRunner::run_on_device(const Job& job, const Participants& participants) {
  if (!devices_) return false;
  const Collective collective = collective_of(job, participants);
  JobResult result{job.items};
  result.on_device = devices_->run(job, participants, collective);
  if (!result.on_device) return false;
  delivery_->deliver(job, participants, collective, std::move(result));
  return true;
}

bool CollectiveRunner::watch_devices() {
  return devices_ && devices_->watch();
}

void CollectiveRunner::finish_devices() {
  if (!devices_) return;
  devices_->finish();
  devices_->close();
  free_results();
}

std::chrono::milliseconds CollectiveRunner::end_patience() const {
  return std::max(kLeastEndPatience, 2 * context_.config.deadline);
}

void CollectiveRunner::close_devices() noexcept {
  if (devices_) devices_->close();
  stop_.close();
}

void CollectiveRunner::run(const Job& job, const Participants& participants) {
  Collective collective = collective_of(job, participants);
  const bool is_bucket = collective.kind == CollectiveKind::kAllReduce && !runs_by_tensor(*job.first().spec) &&
                         delivery_->is_bucket(job, participants, collective);
  fail_point("lane.data");
  JobResult result =
      is_bucket ? delivery_->reduce_bucket(job, participants, collective) : run_apart(job, participants, collective);
  delivery_->deliver(job, participants, collective, std::move(result));
}

// Each tensor by itself. A barrier is the delivery's.
JobResult CollectiveRunner::run_apart(const Job& job, const Participants& participants, const Collective& collective) {
  JobResult result{job.items};
  const TensorSpec& spec = *job.first().spec;
  if (spec.kind == CollectiveKind::kBarrier) return result;
  const Job apart{job.release, delivery_->outputs(job, participants, result)};
  if (runs_by_tensor(spec)) {
    run_by_tensor(apart, participants, collective);
  } else {
    try {
      result.outcome = run_item(apart.first(), collective, participants);
    } catch (const OutTooSmall& e) {
      result.failure = invalid(e.what());
    }
  }
  recorder_.mark(Phase::kTransfer);
  return result;
}

// Works end only in tasks of this lane while it runs, so a plan with no finished Work has all its memory.
void CollectiveRunner::run(const FilledPlan& filled) {
  const std::vector<Item>& items = *filled.items;
  if (items.front().spec->device != DeviceType::kHost) return;
  for (const Item& item : items) {
    if (item.work->finished()) return;
  }
  const TensorSpec& spec = *items.front().spec;
  Collective like;
  like.op = spec.op;
  like.dtype = spec.dtype;
  like.channel = channel_;
  like.counts = {bytes_of(items) / size_of(spec.dtype)};
  if (delivery_->is_packed(items, like)) buckets_.prepack(items);
}

Participants CollectiveRunner::participants_of(const Job& job) {
  Group& group = groups_.of(job.release.ranks, job.release.set);
  const std::vector<int>& members = groups_.members().ranks;
  // Pairs of ranks exchange messages in their own orders, so the eager bytes of one pair say nothing about another.
  std::size_t* eager = job.first().spec->kind == CollectiveKind::kSendRecv ? nullptr : &eager_bytes_;
  return {group, job.release.ranks.empty() ? members : job.release.ranks, members, channel_, eager};
}

Collective CollectiveRunner::collective_of(const Job& job, const Participants& participants) const {
  Collective collective = collective_for(job, participants, context_.config);
  const TensorSpec& spec = *job.first().spec;
  if (spec.op == ReduceOp::kCustom) collective.custom = &context_.registry.op(spec.custom_op);
  // The device of another member may still compute what it reduces. A member that has stopped is found by its beats.
  if (Staging::needs(job)) collective.deadline = TimePoint::max();
  if (spec.kind == CollectiveKind::kAllReduce) collective.counts = {bytes_of(*job.items) / size_of(collective.dtype)};
  return collective;
}

void CollectiveRunner::run_by_tensor(const Job& job, const Participants& participants, const Collective& collective) {
  const std::string& codec = job.first().spec->codec;
  if (!codec.empty()) return coded_.run(job, participants, collective, context_.registry.codecs().get(codec));
  std::vector<AdasumTensor> tensors;
  tensors.reserve(job.items->size());
  for (const Item& item : *job.items) {
    tensors.push_back({static_cast<const std::byte*>(item.submission.in), static_cast<std::byte*>(item.submission.out),
                       item.spec->elements()});
  }
  run_adasum(participants.group, collective, tensors, adasum_scratch_);
}

}  // namespace horo
