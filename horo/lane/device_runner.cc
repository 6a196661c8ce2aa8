#include "horo/lane/device_runner.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "horo/base/error.h"
#include "horo/base/say.h"
#include "horo/lane/part_sizes.h"
#include "horo/tensors/spec_check.h"

namespace horo {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::uint64_t kSizesPlan = std::uint64_t{1} << 60;  // of exchanges of sizes, beside those of Staging's jobs
constexpr std::chrono::microseconds kFirstPause{20}, kLongestPause{1'000};  // between two looks at an event
constexpr std::chrono::milliseconds kLookPause{20};
constexpr std::chrono::seconds kLeftPatience{5};

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool is_on(const Item& item, const CudaDevice& device) {
  return item.submission.ready->device().number() == device.number();
}

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
      return job.turn != 0 && job.release.ranks.empty() && !runs_by_tensor(spec) && bytes_of(*job.items) > 0;
    default:
      return job.turn != 0 && job.release.ranks.empty() && has_varying_result(spec.kind);
  }
}

// Of a bucket, each tensor is in its own place, in and out.
std::size_t in_bytes(const Item& item, const Collective& collective, int rank) {
  const bool is_from_root =
      collective.kind == CollectiveKind::kBroadcast || collective.kind == CollectiveKind::kScatter;
  const bool reads = !is_from_root || collective.root == rank;
  return reads && !item.submission.absent ? item.bytes : 0;
}

// Whether the caller has memory for a result of varying size.
bool has_room(const Item& item, std::size_t bytes) {
  return bytes == 0 || (item.submission.out != nullptr && item.submission.out_bytes >= bytes);
}

}  // namespace

bool DeviceRunner::run(const Job& job, const Participants& participants, const Collective& like) {
  if (job.turn == 0) return false;
  const DeviceTurns::Turn turn(context_.turns, job.turn);
  if (!may_run(job)) return false;
  Collective collective = like;
  collective.counts = counts_of(job, participants);
  const CudaDevice first = job.first().submission.ready->device();
  const OnDevice on_first(first);
  DeviceGroup* const group = groups_.of(participants, like, first);
  if (group == nullptr || !group->takes(collective)) return false;
  Outcome outcome;
  if (has_varying_result(collective.kind) && !find_parts(job.first(), participants, collective, outcome)) return false;
  const OnDevice here(group->device());
  DeviceStream& stream = turn.stream_of(group->device());
  for (const Item& item : *job.items) item.submission.ready->hold_up(group->device(), stream.handle());
  forget_done();
  running_.push_back({std::make_shared<const DeviceEvent>(stream.device(), stream.handle()), nullptr});
  const bool is_packed = place(job, participants, collective, stream);
  context_.recorder.mark(Phase::kPack);
  group->enqueue(collective, stream);
  context_.recorder.mark(Phase::kTransfer);
  const bool fits = has_room(job.first(), outcome.bytes);
  if (is_packed && fits) unpack(job, participants, collective, stream);
  fits ? issue(job.items, std::move(outcome), stream) : end_on_host(job.items, collective, std::move(outcome), stream);
  context_.recorder.mark(Phase::kUnpack);
  return true;
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

// Sets the buffers: the memory of the tensors where it is one piece on the group's device, else a copy (true).
bool DeviceRunner::place(const Job& job, const Participants& participants, Collective& c, DeviceStream& stream) {
  const CudaDevice& device = stream.device();
  const std::vector<Item>& items = *job.items;
  const std::size_t in = bytes_of(items);
  const bool is_varying = has_varying_result(c.kind);
  const std::size_t fixed = items.size() > 1 ? in : out_bytes_of(items.front(), participants);
  const std::size_t out = is_varying ? c.out.bytes : fixed;
  const bool is_here = std::ranges::all_of(items, [&](const Item& item) { return is_on(item, device); });
  const Submission& only = items.front().submission;
  if (is_here && items.size() == 1 && (!is_varying || has_room(items.front(), out))) {
    c.in = buffer_of(only.absent ? only.out : only.in, in);
    c.out = buffer_of(only.out, out);
    return false;
  }
  if (std::byte* const memory = is_here ? contiguous_memory(items) : nullptr) {
    c.in = c.out = buffer_of(memory, in);
    return false;
  }
  if (!bucket_) bucket_ = std::make_unique<DeviceScratch>(device);
  const bool is_apart = is_varying || c.kind == CollectiveKind::kReduceScatter;
  std::byte* at = bucket_->at_least(is_apart ? aligned(in) + out : in);
  c.in = buffer_of(at, in);
  c.out = is_apart ? buffer_of(at + aligned(in), out) : c.in;
  std::vector<CopyRow> rows;
  for (const Item& item : items) {
    rows.push_back({item.submission.in, at, in_bytes(item, c, participants.group.rank())});
    at += item.bytes;
  }
  copy(rows, is_here, stream);
  return true;
}

void DeviceRunner::unpack(const Job& job, const Participants& participants, const Collective& c, DeviceStream& stream) {
  const std::byte* at = c.out.data;
  bool is_here = true;
  std::vector<CopyRow> rows;
  for (const Item& item : *job.items) {
    const bool is_varying = has_varying_result(c.kind);
    rows.push_back({at, item.submission.out, is_varying ? c.out.bytes : out_bytes_of(item, participants)});
    at += item.bytes;
    is_here = is_here && is_on(item, stream.device());
  }
  copy(rows, is_here, stream);
}

// A kernel reads and writes the memory of its own device.
void DeviceRunner::copy(const std::vector<CopyRow>& rows, bool is_here, DeviceStream& stream) {
  const CudaDevice& device = stream.device();
  const CudaApi& api = device.api();
  if (is_here && rows.size() > 1 && api.copy_rows(rows.data(), rows.size(), stream.handle()) == 0) return;
  for (const CopyRow& row : rows) {
    if (row.bytes > 0) stream.copy_on_device(row.to, row.from, row.bytes);
  }
}

// A retired tensor may be submitted again at once: what is enqueued for it then follows on the stream.
void DeviceRunner::issue(const ItemList& items, Outcome outcome, DeviceStream& stream) {
  last_ = running_.back().done = std::make_shared<const DeviceEvent>(stream.device(), stream.handle());
  context_.tensor_table.retire_issued(items);
  if (items->size() > 1) return Work::issue_all(*items, last_);
  items->front().work->issue(std::move(outcome), last_);
}

// The caller has no memory of the device, or too little, for a result whose size all members know. So this rank waits
// for the result, while the others do not.
void DeviceRunner::end_on_host(const ItemList& items, const Collective& c, Outcome outcome, DeviceStream& stream) {
  last_ = running_.back().done = std::make_shared<const DeviceEvent>(stream.device(), stream.handle());
  wait();
  const Item& item = items->front();
  const bool is_wanted = item.submission.out == nullptr;
  if (is_wanted) {
    outcome.data = std::make_unique_for_overwrite<std::byte[]>(outcome.bytes);
    stream.copy_to_host(outcome.data.get(), c.out.data, outcome.bytes);
    stream.finish();
  }
  context_.tensor_table.retire(*items);
  is_wanted ? item.work->finish(std::move(outcome)) : item.work->fail(invalid(too_small_text(item, outcome.bytes)));
}

bool DeviceRunner::watch() {
  if (!last_ || last_->is_complete()) {
    left_.reset();
    return false;
  }
  groups_.check();
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
  const bool is_held_up = !running_.empty() && !running_.front().begun->is_complete();
  if (is_held_up) return left_.reset();  // by the callers' streams, not by a rank
  const auto has_left = [this](int rank) {
    return rank != context_.transport.rank() && context_.transport.has_left(rank);
  };
  const auto gone = std::ranges::find_if(ranks_, has_left);
  if (gone == ranks_.end()) return;
  if (!left_) left_ = now;
  if (now - *left_ < kLeftPatience) return;
  throw PeerLost(*gone, say("rank ", *gone, " has left the job before its part of a collective of CUDA tensors"));
}

void DeviceRunner::wait() {
  Duration pause = kFirstPause;
  while (watch()) {
    context_.stop.pause(pause);
    pause = std::min<Duration>(2 * pause, kLongestPause);
  }
}

void DeviceRunner::finish() {
  wait();
  groups_.finalize();
}

void DeviceRunner::close() noexcept {
  try {
    finish();
  } catch (const std::exception&) {  // stopped, or the device has failed
    context_.stop.wait_until_failed();
  }
  groups_.abort();
  bucket_.reset();
  last_.reset();
  running_.clear();
}

}  // namespace horo
