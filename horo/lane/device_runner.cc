#include "horo/lane/device_runner.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "horo/base/error.h"
#include "horo/base/fail_point.h"
#include "horo/base/say.h"
#include "horo/tensors/spec_check.h"

namespace horo {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::chrono::microseconds kFirstPause{20}, kLongestPause{1'000};  // between two looks at an event
constexpr std::chrono::microseconds kLongestResultPause{100};
constexpr std::chrono::milliseconds kLookPause{20};
constexpr std::chrono::seconds kLeftPatience{5};

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool is_on(const Item& item, const CudaDevice& device) {
  return item.submission.ready->device().number() == device.number();
}

// The elements of each member's part.
std::vector<std::size_t> counts_of(const Job& job, const Participants& participants) {
  const TensorSpec& spec = *job.first().spec;
  if (spec.kind != CollectiveKind::kReduceScatter) return {bytes_of(*job.items) / size_of(spec.dtype)};
  std::vector<std::size_t> counts;
  for (const std::int64_t rows : rows_for_each(spec.splits, spec.shape.front(), participants.group.size())) {
    counts.push_back(static_cast<std::size_t>(rows) * row_elements(spec));
  }
  return counts;
}

// The kinds of which every member has the whole, or its part, and knows the sizes. Tensors with a codec or Adasum are
// cut into parts by themselves, on the host.
bool may_run(const Job& job) {
  const TensorSpec& spec = *job.first().spec;
  switch (spec.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kBroadcast:
      return job.turn != 0 && job.release.ranks.empty() && !runs_by_tensor(spec) && bytes_of(*job.items) > 0;
    default:
      return false;
  }
}

// Of a bucket, each tensor is in its own place, in and out.
std::size_t in_bytes_of(const Item& item, const Collective& collective, int rank) {
  const bool reads = collective.kind != CollectiveKind::kBroadcast || collective.root == rank;
  return reads && !item.submission.absent ? item.bytes : 0;
}

// The copies of the tensors to this memory, and from it.
std::vector<CopyRow> rows_in_of(const std::vector<Item>& items, std::byte* to, const Collective& c,
                                const Participants& participants) {
  std::vector<CopyRow> rows;
  for (const Item& item : items) {
    rows.push_back({item.submission.in, to, in_bytes_of(item, c, participants.group.rank())});
    to += item.bytes;
  }
  return rows;
}

std::vector<CopyRow> rows_out_of(const std::vector<Item>& items, const std::byte* from,
                                 const Participants& participants) {
  std::vector<CopyRow> rows;
  for (const Item& item : items) {
    rows.push_back({from, item.submission.out, out_bytes_of(item, participants)});
    from += item.bytes;
  }
  return rows;
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
  DeviceGroup* const group = groups_.of(participants, like, first);
  if (group == nullptr || !group->takes(collective)) return std::nullopt;
  const OnDevice here(group->device());
  DeviceStream& stream = turn.stream_of(group->device());
  for (const Item& item : *job.items) item.submission.ready->hold_up(group->device(), stream.handle());
  begun_ = std::make_shared<const DeviceEvent>(stream.device(), stream.handle());
  Places places = place(job, participants, collective, stream);
  collective.in = places.in;
  collective.out = places.out;
  stream.copy_rows(places.rows_in, places.is_here);
  context_.recorder.mark(Phase::kPack);
  counted([&] { group->enqueue(collective, stream); });
  fail_point("device.enqueued");
  context_.recorder.mark(Phase::kTransfer);
  if (!context_.retains) stream.copy_rows(places.rows_out, places.is_here);
  last_ = std::make_shared<const DeviceEvent>(stream.device(), stream.handle());
  context_.recorder.mark(Phase::kUnpack);
  if (!context_.retains) return DeviceResult{last_};
  holds_results_.store(true, std::memory_order_relaxed);
  return DeviceResult{last_, places.held.data, places.held.bytes, std::move(places.rows_out), places.is_here};
}

// The memory of the tensors where it is one piece on the group's device, and may be written; else other memory, with
// copies to it and from it. A retained result is never in the callers' memory, but for that of a broadcast's source.
DeviceRunner::Places DeviceRunner::place(const Job& job, const Participants& participants, const Collective& c,
                                         DeviceStream& stream) {
  const std::vector<Item>& items = *job.items;
  const Submission& only = items.front().submission;
  const bool is_single = items.size() == 1, is_apart = c.kind == CollectiveKind::kReduceScatter;
  const std::size_t in = bytes_of(items), out = is_single ? out_bytes_of(items.front(), participants) : in;
  Places places;
  places.is_here = std::ranges::all_of(items, [&](const Item& item) { return is_on(item, stream.device()); });
  std::byte* const piece = is_single || !places.is_here ? nullptr : contiguous_memory(items);
  const bool is_packed = !places.is_here || (is_single ? context_.retains && only.absent : piece == nullptr);
  const bool is_held = context_.retains && !(is_single && is_source_in_place(items.front(), participants.group));
  const void* from = is_single ? (only.absent ? only.out : only.in) : piece;
  void* to = is_single ? only.out : piece;
  if (is_packed) {
    std::byte* const memory = take(is_apart ? aligned(in) + out : std::max(in, out), stream, places);
    from = memory;
    to = is_apart ? memory + aligned(in) : memory;
    places.rows_in = rows_in_of(items, memory, c, participants);
  } else if (is_held) {
    to = take(out, stream, places);
  }
  if (is_packed || is_held) places.rows_out = rows_out_of(items, static_cast<const std::byte*>(to), participants);
  places.in = buffer_of(from, in);
  places.out = buffer_of(to, out);
  return places;
}

std::byte* DeviceRunner::take(std::size_t bytes, DeviceStream& stream, Places& places) {
  if (bytes == 0) return nullptr;
  if (context_.retains) return (places.held = results_.take(bytes, stream)).data;
  if (!bucket_) bucket_ = std::make_unique<DeviceScratch>(stream.device());
  return bucket_->at_least(bytes);
}

void DeviceRunner::wait_for_results() {
  for (Duration pause = kFirstPause; watch(); pause = std::min<Duration>(2 * pause, kLongestResultPause)) {
    context_.stop.pause(pause);
  }
}

bool DeviceRunner::watch() {
  if (!last_ || last_->is_complete()) {
    left_.reset();
    return false;
  }
  counted([&] { groups_.check(); });
  check_ranks();
  return true;
}

void DeviceRunner::counted(const std::function<void()>& call) {
  try {
    call();
  } catch (const PeerLost&) {
    if (!std::exchange(has_failed_, true)) context_.counters.add_nccl_error();
    throw;
  }
}

// A rank that leaves in good order has done its part, or has not begun it and never will.
void DeviceRunner::check_ranks() {
  const TimePoint now = Clock::now();
  if (now - looked_ < kLookPause) return;
  looked_ = now;
  if (begun_ && !begun_->is_complete()) return left_.reset();  // the callers' streams hold it up, not a rank
  const auto has_left = [this](int rank) {
    return rank != context_.transport.rank() && context_.transport.has_left(rank);
  };
  const auto gone = std::ranges::find_if(ranks_, has_left);
  if (gone == ranks_.end()) return;
  if (!left_) left_ = now;
  if (now - *left_ < kLeftPatience) return;
  throw PeerLost(*gone, say("rank ", *gone, " has left the job before its part of a collective of CUDA tensors"));
}

void DeviceRunner::finish() {
  Duration pause = kFirstPause;
  while (watch()) {
    context_.stop.pause(pause);
    pause = std::min<Duration>(2 * pause, kLongestPause);
  }
  while (!results_.is_idle()) context_.stop.pause(kFirstPause);
  if (!context_.retains) groups_.finalize();  // a result that is delivered is there on all ranks
}

void DeviceRunner::close() noexcept {
  try {
    finish();
  } catch (const std::exception&) {  // stopped, or the device has failed
    context_.stop.wait_until_failed();
  }
  context_.stop.begin_end();
  groups_.abort();
  bucket_.reset();
  last_.reset();
  begun_.reset();
}

}  // namespace horo
