#include "horo/lane/device_places.h"

#include <algorithm>

#include "horo/tensors/spec_check.h"

namespace horo {
namespace {

constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool is_on(const Item& item, const CudaDevice& device) {
  return item.submission.ready->device().number() == device.number();
}

// Of a bucket, each tensor is in its own place, in and out.
std::size_t in_bytes_of(const Item& item, const Collective& c, int rank) {
  const bool is_from_root =
      c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kScatter || c.kind == CollectiveKind::kSendRecv;
  const bool reads = !is_from_root || c.root == rank;
  return reads && !item.submission.absent ? item.bytes : 0;
}

// Whether the caller has memory for a result of varying size.
bool has_room(const Item& item, std::size_t bytes) {
  return bytes == 0 || (item.submission.out != nullptr && item.submission.out_bytes >= bytes);
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

DevicePlaces place_on(const DeviceSpace& space, const Job& job, const Participants& participants, const Collective& c) {
  const std::vector<Item>& items = *job.items;
  const Item& first = items.front();
  const Submission& only = first.submission;
  const bool is_single = items.size() == 1, is_varying = has_varying_result(c.kind);
  const bool has_two_places = is_varying || c.kind == CollectiveKind::kReduceScatter;
  const std::size_t in = bytes_of(items), fixed = is_single ? out_bytes_of(first, participants) : in;
  const std::size_t out = is_varying ? c.out.bytes : fixed;
  DevicePlaces places;
  places.is_here = std::ranges::all_of(items, [&](const Item& item) { return is_on(item, space.device); });
  places.fits = !is_varying || has_room(first, out);
  std::byte* const piece = is_single || !places.is_here ? nullptr : contiguous_memory(items);
  const bool is_packed = !places.is_here || (is_single ? space.is_apart && only.absent : piece == nullptr);
  const bool is_source = is_single && is_source_in_place(first, participants.group);
  const bool is_elsewhere = is_packed || (space.is_apart && !is_source) || !places.fits;
  const void* from = is_single ? (only.absent ? only.out : only.in) : piece;
  void* to = is_single ? only.out : piece;
  if (is_packed) {
    std::byte* const memory = space.take(has_two_places ? aligned(in) + out : std::max(in, out));
    from = memory;
    to = has_two_places ? memory + aligned(in) : memory;
    places.rows_in = rows_in_of(items, memory, c, participants);
  } else if (is_elsewhere) {
    to = space.take(out);
  }
  const auto* const result = static_cast<const std::byte*>(to);
  if (is_elsewhere && is_varying) {
    places.rows_out = {{result, only.out, places.fits ? out : 0}};
  } else if (is_elsewhere) {
    places.rows_out = rows_out_of(items, result, participants);
  }
  places.in = buffer_of(from, in);
  places.out = buffer_of(to, out);
  return places;
}

}  // namespace horo
