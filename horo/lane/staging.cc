#include "horo/lane/staging.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "horo/tensors/spec_check.h"

namespace horo {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLeastSpare = 8;
constexpr std::chrono::microseconds kFirstPause{20}, kLongestPause{1'000};

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The bytes that the collective reads from this rank.
std::size_t in_bytes_of(const Item& item, const Participants& participants) {
  const TensorSpec& spec = *item.spec;
  const int me = participants.group.rank();
  switch (spec.kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      return spec.root == me ? spec.bytes() : 0;
    case CollectiveKind::kSendRecv:
      return (spec.root < spec.peer) == (me == 0) ? spec.bytes() : 0;  // as the root of the pair
    default:
      return item.submission.absent ? 0 : spec.bytes();
  }
}

// The room that the job's caller has for the result.
std::size_t out_room_of(const Item& item, const Participants& participants) {
  if (!has_varying_result(item.spec->kind)) return out_bytes_of(item, participants);
  return item.submission.out == nullptr ? 0 : item.submission.out_bytes;
}

// The result of all others takes the place of the input, as that is a copy.
bool has_two_places(CollectiveKind kind) {
  return has_varying_result(kind) || kind == CollectiveKind::kReduceScatter;
}

// Where a tensor lies in the host memory of its job.
struct Place {
  std::size_t in = 0, out = 0;
};

// The tensors of a bucket lie one behind the other, so that it needs no further copy. Returns the bytes of all.
std::size_t lay_out(const std::vector<Item>& items, const Participants& participants, std::vector<Place>& places) {
  std::size_t bytes = 0;
  for (const Item& item : items) {
    const std::size_t in = in_bytes_of(item, participants), out = out_room_of(item, participants);
    const bool is_apart = has_two_places(item.spec->kind);
    const std::size_t behind = aligned(bytes + in);
    places.push_back({bytes, is_apart ? behind : bytes});
    bytes = is_apart ? behind + out : bytes + std::max(in, out);
  }
  return bytes;
}

}  // namespace

DeviceStream& Staging::stream_of(const CudaDevice& device) {
  const auto found = streams_.find(device.number());
  return found != streams_.end() ? found->second : streams_.try_emplace(device.number(), device).first->second;
}

// Pinned, where the system allows it. Else the driver copies by way of memory of its own, which takes longer.
Allocation Staging::take_memory(std::size_t bytes, const CudaDevice& device) {
  if (Allocation memory = spare_.take(bytes); memory.data) return memory;
  Allocation memory = group_->allocate(std::max(bytes, SpareMemory::kSmallBytes));
  const OnDevice here(device);
  if (device.api().pin(memory.data.get(), memory.bytes) != 0) return memory;
  const auto free = std::move(memory.data.get_deleter());
  std::byte* const data = memory.data.release();
  return {{data,
           [device, free](std::byte* pinned) {
             device.free_on([pinned](const CudaApi& api) { api.unpin(pinned); });
             free(pinned);
           }},
          memory.bytes};
}

// The caller's stream may wait for a rank that is lost, in a kernel of another library. So a lane that is stopped does
// not wait for it.
void Staging::wait_for(const DeviceEvent& ready) {
  Duration pause = kFirstPause;
  while (!ready.is_complete()) {
    stop_.pause(pause);
    pause = std::min<Duration>(2 * pause, kLongestPause);
  }
}

// The memory is not freed before the copies have ended.
class Staging::Copies {
 public:
  explicit Copies(Staging& staging) : staging_(staging) {}
  ~Copies() {
    for (DeviceStream* stream : used_) {
      try {
        finish(*stream);
      } catch (const std::exception&) {  // another one is under way
      }
    }
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  DeviceStream& on(const CudaDevice& device) {
    DeviceStream& stream = staging_.stream_of(device);
    if (std::ranges::find(used_, &stream) == used_.end()) used_.push_back(&stream);
    return stream;
  }
  void finish() {
    while (!used_.empty()) {
      DeviceStream* const stream = used_.back();
      used_.pop_back();
      finish(*stream);
    }
  }

 private:
  static void finish(DeviceStream& stream) {
    const OnDevice here(stream.device());
    stream.finish();
  }

  Staging& staging_;
  std::vector<DeviceStream*> used_;
};

Job Staging::copy_in(const Job& job, const Participants& participants) {
  std::vector<Item> items = *job.items;
  for (const Item& item : items) wait_for(*item.submission.ready);
  std::vector<Place> places;
  const std::size_t bytes = lay_out(items, participants, places);
  const CudaDevice& first = items.front().submission.ready->device();
  Staged staged{take_memory(std::max<std::size_t>(bytes, 1), first), {}};
  std::byte* const memory = staged.memory.data.get();
  {
    Copies copies(*this);
    for (std::size_t i = 0; i < items.size(); ++i) {
      Submission& submission = items[i].submission;
      const CudaDevice& device = submission.ready->device();
      const OnDevice here(device);
      const std::size_t in = in_bytes_of(items[i], participants);
      if (in > 0) copies.on(device).copy_to_host(memory + places[i].in, submission.in, in);
      const bool has_varying = has_varying_result(items[i].spec->kind);
      staged.tensors.push_back({device, submission.out, memory + places[i].out,
                                has_varying ? 0 : out_bytes_of(items[i], participants), has_varying});
      submission.in = memory + places[i].in;
      submission.out = submission.out == nullptr ? nullptr : memory + places[i].out;
    }
    copies.finish();
  }
  staged_.insert_or_assign(items.front().work.get(), std::move(staged));
  most_ = std::max(most_, staged_.size());
  return {job.release, std::make_shared<const std::vector<Item>>(std::move(items)), job.released};
}

std::optional<Staging::Staged> Staging::forget(const std::vector<Item>& items) {
  if (staged_.empty()) return std::nullopt;
  const auto found = staged_.find(items.front().work.get());
  if (found == staged_.end()) return std::nullopt;
  std::optional<Staged> staged(std::move(found->second));
  staged_.erase(found);
  return staged;
}

void Staging::put_away(Allocation memory) {
  Allocation oldest = spare_.give_back(std::move(memory), std::max(kLeastSpare, most_));
  if (oldest.data) left_.push_back(std::move(oldest));
  if (!left_.empty() && is_at_rest_()) left_.clear();
}

void Staging::copy_out(const std::vector<Item>& items, const Outcome& outcome) {
  std::optional<Staged> staged = forget(items);
  if (!staged) return;
  Copies copies(*this);
  for (const Tensor& tensor : staged->tensors) {
    const std::size_t bytes = tensor.has_varying ? outcome.bytes : tensor.bytes;
    if (bytes == 0 || tensor.device_out == nullptr) continue;
    const OnDevice here(tensor.device);
    copies.on(tensor.device).copy_to_device(tensor.device_out, tensor.host_out, bytes);
  }
  copies.finish();
  put_away(std::move(staged->memory));
}

void Staging::drop(const std::vector<Item>& items) {
  if (std::optional<Staged> staged = forget(items)) put_away(std::move(staged->memory));
}

}  // namespace horo
