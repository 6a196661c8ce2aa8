#include "horo/lane/device_runner.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "horo/base/error.h"
#include "horo/base/fail_point.h"
#include "horo/base/say.h"
#include "horo/base/thread.h"
#include "horo/lane/device_places.h"
#include "horo/lane/part_sizes.h"
#include "horo/tensors/spec_check.h"

namespace horo {
namespace {

constexpr std::uint64_t kSizesPlan = std::uint64_t{1} << 60;  // of exchanges of sizes, beside those of Staging's jobs
constexpr std::chrono::microseconds kFirstPause{20}, kLongestPause{200};  // between two looks at an event
constexpr std::chrono::milliseconds kLookPause{20};
constexpr std::chrono::seconds kLeftPatience{5};

// The elements of each member's part, where all parts are known.
std::vector<std::size_t> counts_of(const Job& job, const Participants& participants) {
  const TensorSpec& spec = *job.first().spec;
  if (has_varying_result(spec.kind)) return {};
  if (spec.kind != CollectiveKind::kReduceScatter) return {bytes_of(*job.items) / size_of(spec.dtype)};
  std::vector<std::size_t> counts;
  for (const std::int64_t rows : rows_for_each(spec.splits, spec.shape.front(), participants.group.size())) {
    counts.push_back(static_cast<std::size_t>(rows) * row_elements(spec));
  }
  return counts;
}

// Tensors with a codec or Adasum are cut into parts by themselves, on the host.
bool may_run(const Job& job) {
  const TensorSpec& spec = *job.first().spec;
  switch (spec.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kBroadcast:
      return job.release.ranks.empty() && !runs_by_tensor(spec) && bytes_of(*job.items) > 0;
    case CollectiveKind::kSendRecv:
      return bytes_of(*job.items) > 0;
    default:
      return job.release.ranks.empty() && has_varying_result(spec.kind);
  }
}

}  // namespace

std::optional<DeviceResult> DeviceRunner::run(const Job& job, const Participants& participants,
                                              const Collective& like) {
  if (job.turn == 0) return std::nullopt;
  const DeviceTurns::Turn turn(context_.turns, job.turn);
  if (!may_run(job)) return std::nullopt;
  Collective collective = like;
  collective.counts = counts_of(job, participants);
  const CudaDevice first = job.first().submission.ready->device();
  const OnDevice on_first(first);
  DeviceGroup* const group = groups_of(job).of(participants, like, turn.stream_of(first));
  if (group == nullptr || !group->takes(collective)) return std::nullopt;
  DeviceResult result;
  if (has_varying_result(collective.kind) && !find_parts(job.first(), participants, collective, result.outcome)) {
    return std::nullopt;
  }
  const OnDevice here(group->device());
  DeviceStream& stream = turn.stream_of(group->device());
  for (const Item& item : *job.items) item.submission.ready->hold_up(group->device(), stream.handle());
  forget_done();
  running_.push_back({std::make_shared<const DeviceEvent>(stream.device(), stream.handle()), nullptr, job.release.ranks,
                      std::nullopt});
  const auto take = [&](std::size_t bytes) { return this->take(bytes, stream, result); };
  const DeviceSpace space{stream.device(), context_.retains, take};
  const DevicePlaces places = place_on(space, with_loan(job, stream, result.outcome), participants, collective);
  collective.in = places.in;
  collective.out = places.out;
  stream.copy_rows(places.rows_in, places.is_here);
  context_.recorder.mark(Phase::kPack);
  const Traffic before = group->traffic();
  group->enqueue(collective, stream);
  const Traffic traffic = group->traffic() - before;
  context_.counters.add_collective(job.release.set, collective.kind, group->algorithm(collective),
                                   payload_bytes(collective), traffic);
  context_.recorder.moved_by(group->algorithm(collective), traffic);
  fail_point("device.enqueued");
  context_.recorder.mark(Phase::kTransfer);
  if (!context_.retains) stream.copy_rows(places.rows_out, places.is_here);
  result.done = std::make_shared<const DeviceEvent>(stream.device(), stream.handle());
  last_[stream.device().number()] = running_.back().done = result.done;
  context_.recorder.mark(Phase::kUnpack);
  if (context_.retains) holds_results_.store(true, std::memory_order_relaxed);
  result.rows = places.rows_out;
  result.is_here = places.is_here;
  result.fits = places.fits;
  result.from = places.out;
  return result;
}

// Each pair of ranks with messages has a communicator of its own, since the others take no part.
DeviceGroups& DeviceRunner::groups_of(const Job& job) {
  const auto watch = [this] { this->watch(); };
  return groups_.try_emplace(job.release.ranks, context_.config, context_.counters, context_.stop, watch).first->second;
}

// Sets the counts, the bytes of the result, and the outcome. Members that do not know the sizes tell them, and whether
// they have room for the result on the device. False: one of them has none.
bool DeviceRunner::find_parts(const Item& item, const Participants& participants, Collective& c, Outcome& outcome) {
  Collective like = c;
  like.plan |= kSizesPlan;
  const PartSizes sizes(item, like, participants);
  Parts parts = item.spec->counts_known ? sizes.known() : sizes.exchanged_with_room();
  c.counts = std::move(parts.counts);
  c.out.bytes = outcome.bytes = parts.bytes;
  outcome.counts = std::move(parts.rows);
  return item.spec->counts_known || parts.have_room;
}

// The job with memory for its result, if its caller has none and may get it.
Job DeviceRunner::with_loan(const Job& job, const DeviceStream& stream, Outcome& outcome) {
  const Submission& submission = job.first().submission;
  if (!submission.may_own_on_device() || outcome.bytes == 0) return job;
  outcome.on_device = loans_->take(submission.ready->device(), outcome.bytes, stream);
  std::vector<Item> items = *job.items;
  items.front().submission.out = outcome.on_device->data();
  items.front().submission.out_bytes = outcome.bytes;
  return {job.release, std::make_shared<const std::vector<Item>>(std::move(items)), job.released, job.turn};
}

std::byte* DeviceRunner::take(std::size_t bytes, DeviceStream& stream, DeviceResult& result) {
  if (bytes == 0) return nullptr;
  if (context_.retains) return (result.held = results_.take(bytes, stream)).data;
  const CudaDevice& device = stream.device();
  return buckets_.try_emplace(device.number(), device, "buckets (HORO_BUCKET_BYTES)").first->second.at_least(bytes);
}

void DeviceRunner::wait_for_results() {
  for (Duration pause = kFirstPause; watch(); pause = std::min<Duration>(2 * pause, kLongestPause)) {
    context_.stop.pause(pause);
  }
}

bool DeviceRunner::is_at_rest() const {
  return std::ranges::all_of(last_, [](const auto& one) { return one.second->is_complete(); });
}

bool DeviceRunner::watch() {
  if (is_at_rest()) return false;
  for (const auto& [ranks, groups] : groups_) groups.check();
  check_ranks();
  return true;
}

void DeviceRunner::forget_done() {
  while (!running_.empty() && running_.front().done && running_.front().done->is_complete()) running_.pop_front();
}

// A rank that leaves in good order has done its part, or has not begun it and never will.
void DeviceRunner::check_ranks() {
  const TimePoint now = Clock::now();
  if (now - looked_ < kLookPause) return;
  looked_ = now;
  forget_done();
  if (running_.empty()) return;
  OnStream& job = running_.front();
  const bool is_held_up = !job.begun->is_complete();
  if (is_held_up) return job.left.reset();  // by the callers' streams, not by a rank
  const auto has_left = [this](int rank) {
    return rank != context_.transport.rank() && context_.transport.has_left(rank);
  };
  const std::vector<int>& ranks = job.ranks.empty() ? ranks_ : job.ranks;
  const auto gone = std::ranges::find_if(ranks, has_left);
  if (gone == ranks.end()) return;
  if (!job.left) job.left = now;
  if (now - *job.left < kLeftPatience) return;
  throw PeerLost(*gone, say("rank ", *gone, " has left the job before its part of a collective of CUDA tensors"));
}

void DeviceRunner::finish() {
  wait_for_results();
  while (!results_.is_idle()) context_.stop.pause(kFirstPause);
  if (context_.retains) return;  // a result that is delivered is there on all ranks
  for (auto& [ranks, groups] : groups_) groups.finalize();
}

// Kernels of the callers that hold up the first job may take any time, and are no fault of NCCL.
void DeviceRunner::wait_for_callers() noexcept {
  try {
    for (forget_done(); !running_.empty() && !running_.front().begun->is_complete(); forget_done()) {
      context_.stop.rest(kLongestPause);
    }
  } catch (const std::exception&) {  // the device has failed
  }
}

// The jobs end after the abort, without results.
void DeviceRunner::wait_for_rest() noexcept {
  try {
    while (!is_at_rest()) context_.stop.rest(kLongestPause);
  } catch (const std::exception&) {  // the device has failed
  }
}

// At once: an abort waits for what the stream has before its own collectives, and so for the aborts of other groups.
// Those that get no thread, as the process may have no more, come behind the others.
void DeviceRunner::abort_groups() noexcept {
  std::vector<std::jthread> aborts;
  std::size_t place = 0;
  for (auto& [ranks, groups] : groups_) {
    try {
      aborts.resize(groups_.size());
      if (groups.are_any()) aborts[place] = start_thread("horo abort", [&one = groups] { one.abort(); });
    } catch (const std::exception&) {
    }
    ++place;
  }
  place = 0;
  for (auto& [ranks, groups] : groups_) {
    if (place >= aborts.size() || !aborts[place].joinable()) groups.abort();
    ++place;
  }
}

void DeviceRunner::close() noexcept {
  try {
    finish();
  } catch (const std::exception&) {  // stopped, or the device has failed
    context_.stop.wait_until_failed();
  }
  wait_for_callers();
  context_.stop.begin_end();
  abort_groups();
  wait_for_rest();
  for (auto& [ranks, groups] : groups_) groups.free();
  buckets_.clear();
  context_.stop.finish_end();
  last_.clear();
  running_.clear();
}

}  // namespace horo
