#include "ring/nccl/nccl_moves.h"

#include <algorithm>
#include <numeric>

namespace horo {
namespace {

bool is_one_size(const std::vector<std::size_t>& counts) {
  return std::ranges::all_of(counts, [&](std::size_t count) { return count == counts.front(); });
}

std::size_t sum_of(const std::size_t* counts, std::size_t number) {
  return std::accumulate(counts, counts + number, std::size_t{0});
}

bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

bool NcclMoves::takes(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kSendRecv:
      return true;
    default:
      return false;
  }
}

void NcclMoves::enqueue(const Collective& c, DeviceStream& stream) {
  if (c.kind == CollectiveKind::kBroadcast) return broadcast(c, stream);
  if (c.kind == CollectiveKind::kSendRecv) return message(c, stream);
  c.kind == CollectiveKind::kAllGather&& is_one_size(c.counts) ? all_gather(c, stream) : exchange(c, stream);
}

void NcclMoves::broadcast(const Collective& c, DeviceStream& stream) {
  const std::byte* const in = is_root(c) ? c.in.data : c.out.data;
  const bool is_last = (me_ + 1) % size_ == static_cast<std::size_t>(c.root);  // of a chain that begins with the root
  calls_.count(is_last ? 0 : c.out.bytes, is_root(c) ? 0 : c.out.bytes);
  calls_.run("ncclBroadcast", [&](const NcclApi& api, NcclComm comm) {
    return api.broadcast(in, c.out.data, c.out.bytes, NcclType::kUint8, c.root, comm, stream.handle());
  });
}

void NcclMoves::message(const Collective& c, DeviceStream& stream) {
  const std::size_t bytes = c.counts[0] * size_of(c.dtype), other = 1 - me_;
  if (bytes == 0) return;
  calls_.run(is_root(c) ? "ncclSend" : "ncclRecv", [&](const NcclApi&, NcclComm) {
    return is_root(c) ? calls_.send(c.in.data, bytes, other, stream) : calls_.receive(c.out.data, bytes, other, stream);
  });
}

void NcclMoves::all_gather(const Collective& c, DeviceStream& stream) {
  const std::size_t bytes = c.counts.front() * size_of(c.dtype);
  if (bytes == 0) return;
  const bool is_in_place = c.in.data == c.out.data + me_ * bytes;
  const std::byte* const in = is_in_place ? c.in.data : input_of(c, bytes, stream);
  calls_.all_gather(in, c.out.data, bytes, stream);
}

const std::byte* NcclMoves::input_of(const Collective& c, std::size_t bytes, DeviceStream& stream) {
  if (!overlap(c.in.data, bytes, c.out.data, c.out.bytes)) return c.in.data;
  std::byte* const copy = copies_.at_least(bytes);
  stream.copy_on_device(copy, c.in.data, bytes);
  return copy;
}

NcclMoves::Sections NcclMoves::sends_of(const Collective& c) const {
  const std::size_t bytes = size_of(c.dtype);
  Sections parts(size_);
  for (std::size_t to = 0; to < size_; ++to) {
    switch (c.kind) {
      case CollectiveKind::kAllToAll: {
        const std::size_t* const mine = c.counts.data() + me_ * size_;
        parts[to] = {sum_of(mine, to) * bytes, mine[to] * bytes};
        break;
      }
      case CollectiveKind::kScatter:
        if (is_root(c)) parts[to] = {sum_of(c.counts.data(), to) * bytes, c.counts[to] * bytes};
        break;
      default:
        if (c.kind == CollectiveKind::kAllGather || static_cast<int>(to) == c.root)
          parts[to] = {0, c.counts[me_] * bytes};
    }
  }
  return parts;
}

NcclMoves::Sections NcclMoves::receives_of(const Collective& c) const {
  const std::size_t bytes = size_of(c.dtype);
  Sections parts(size_);
  for (std::size_t from = 0, offset = 0; from < size_; ++from) {
    std::size_t count = 0;
    switch (c.kind) {
      case CollectiveKind::kAllToAll:
        count = c.counts[from * size_ + me_];
        break;
      case CollectiveKind::kScatter:
        count = static_cast<int>(from) == c.root ? c.counts[me_] : 0;
        break;
      default:
        count = c.kind == CollectiveKind::kAllGather || is_root(c) ? c.counts[from] : 0;
    }
    parts[from] = {offset, count * bytes};
    offset += count * bytes;
  }
  return parts;
}

// A part of no bytes is neither sent nor received: both of its members know that.
void NcclMoves::exchange(const Collective& c, DeviceStream& stream) {
  const Sections sends = sends_of(c), receives = receives_of(c);
  std::byte* const own_place = c.out.data + receives[me_].offset;
  const bool gathers = c.kind == CollectiveKind::kAllGather || c.kind == CollectiveKind::kGather;
  const bool is_in_place = gathers && c.in.data == own_place;
  std::size_t sent = 0;
  for (const Section& part : sends) sent = std::max(sent, part.offset + part.bytes);
  const std::byte* const in = is_in_place ? c.in.data : input_of(c, sent, stream);
  if (sends[me_].bytes > 0 && !is_in_place) stream.copy_on_device(own_place, in + sends[me_].offset, sends[me_].bytes);
  std::vector<std::size_t> peers;
  for (std::size_t peer = 0; peer < size_; ++peer) {
    if (peer != me_ && sends[peer].bytes + receives[peer].bytes > 0) peers.push_back(peer);
  }
  if (peers.empty()) return;
  calls_.run("ncclSend and ncclRecv", [&](const NcclApi&, NcclComm) {
    const auto call = [&](std::size_t i) {
      const auto [from, there] = sends[peers[i]];
      const auto [to, here] = receives[peers[i]];
      int error = kNcclSuccess;
      if (there > 0) error = calls_.send(in + from, there, peers[i], stream);
      if (here == 0 || (error != kNcclSuccess && error != kNcclInProgress)) return error;
      return calls_.receive(c.out.data + to, here, peers[i], stream);
    };
    return calls_.grouped(call, peers.size());
  });
}

}  // namespace horo
