#include "horo/lane/device_runner.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "horo/base/error.h"
#include "horo/base/say.h"
#include "horo/tensors/spec_check.h"

namespace horo {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::chrono::microseconds kFirstPause{20}, kLongestPause{1'000};  // between two looks at an event
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
std::size_t in_bytes(const Item& item, const Collective& collective, int rank) {
  const bool reads = collective.kind != CollectiveKind::kBroadcast || collective.root == rank;
  return reads && !item.submission.absent ? item.bytes : 0;
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
  const OnDevice here(group->device());
  DeviceStream& stream = turn.stream_of(group->device());
  for (const Item& item : *job.items) item.submission.ready->hold_up(group->device(), stream.handle());
  begun_ = std::make_shared<const DeviceEvent>(stream.device(), stream.handle());
  const bool is_packed = place(job, participants, collective, stream);
  context_.recorder.mark(Phase::kPack);
  group->enqueue(collective, stream);
  context_.recorder.mark(Phase::kTransfer);
  if (is_packed) unpack(job, participants, collective, stream);
  issue(job.items, stream);
  context_.recorder.mark(Phase::kUnpack);
  return true;
}

// Sets the buffers: the memory of the tensors where it is one piece on the group's device, else a copy (true).
bool DeviceRunner::place(const Job& job, const Participants& participants, Collective& c, DeviceStream& stream) {
  const CudaDevice& device = stream.device();
  const std::vector<Item>& items = *job.items;
  const std::size_t in = bytes_of(items);
  const std::size_t out = items.size() > 1 ? in : out_bytes_of(items.front(), participants);
  const bool is_here = std::ranges::all_of(items, [&](const Item& item) { return is_on(item, device); });
  const Submission& only = items.front().submission;
  if (is_here && items.size() == 1) {
    c.in = buffer_of(only.absent ? only.out : only.in, in);
    c.out = buffer_of(only.out, out);
    return false;
  }
  if (std::byte* const memory = is_here ? contiguous_memory(items) : nullptr) {
    c.in = c.out = buffer_of(memory, in);
    return false;
  }
  if (!bucket_) bucket_ = std::make_unique<DeviceScratch>(device);
  const bool is_apart = c.kind == CollectiveKind::kReduceScatter;
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
    rows.push_back({at, item.submission.out, out_bytes_of(item, participants)});
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
void DeviceRunner::issue(const ItemList& items, DeviceStream& stream) {
  last_ = std::make_shared<const DeviceEvent>(stream.device(), stream.handle());
  context_.tensor_table.retire_issued(items);
  Work::issue_all(*items, last_);
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
  begun_.reset();
}

}  // namespace horo
