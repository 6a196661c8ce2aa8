#include "ring/nccl/nccl_group.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "horo/base/say.h"
#include "ring/cuda/device_memory.h"
#include "ring/nccl/nccl_call.h"
#include "ring/nccl/nccl_moves.h"
#include "ring/nccl/nccl_types.h"
#include "ring/reduce/tree.h"

namespace horo {
namespace {

constexpr std::size_t kSliceBytes = 32 << 20;  // of a canonical sum, whose shards of the members need as much memory
constexpr std::size_t kSmallBytes = 64 << 10;  // of all inputs together: each member reduces them itself

constexpr std::size_t kFirstBytes = 4;  // that members exchange to connect
constexpr std::size_t kPackBytes = 16;  // of a kernel's loads, where all its inputs are aligned alike

std::size_t in_packs(std::size_t bytes) {
  return (bytes + kPackBytes - 1) / kPackBytes * kPackBytes;
}

// Elements of a shard of each member, at most: some packs.
std::size_t most_elements(std::size_t element_bytes, std::size_t members) {
  const std::size_t pack = kPackBytes / element_bytes, most = kSliceBytes / element_bytes / members;
  return std::max(most / pack * pack, pack);
}

// Elements that one member reduces.
struct Shard {
  std::size_t offset = 0, count = 0;
};

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(std::shared_ptr<const NcclApi> api, DeviceStream& stream, const NcclMembers& members, Pause pause,
            DeviceScratch& scratch)
      : device_(stream.device()),
        members_(members),
        calls_(std::move(api), std::move(pause)),
        moves_(calls_, device_, members.size, members.rank),
        scratch_(scratch) {
    try {
      calls_.connect(members_.size, members_.id, members_.rank, members_.connect_time);
      run_first(stream);
      calls_.connected();
    } catch (...) {
      calls_.abort(device_);
      throw;
    }
  }
  ~NcclGroup() override { abort(); }

  const CudaDevice& device() const override { return device_; }

  bool takes(const Collective& c) const override {
    switch (c.kind) {
      case CollectiveKind::kAllReduce:
      case CollectiveKind::kReduce:
      case CollectiveKind::kReduceScatter:
        return is_native(c) || (has_tree() && has_kernel(c.dtype, c.op));
      default:
        return NcclMoves::takes(c.kind);
    }
  }

  void enqueue(const Collective& c, DeviceStream& stream) override {
    if (NcclMoves::takes(c.kind)) return moves_.enqueue(c, stream);
    if (c.kind == CollectiveKind::kReduceScatter) return scatter(c, stream);
    is_native(c) ? reduce_by_nccl(c, stream) : reduce_by_tree(c, stream);
  }

  void check() const override { calls_.check(); }
  void finalize() override {
    const OnDevice here(device_);
    calls_.finalize();
  }
  void abort() noexcept override { calls_.abort(device_); }
  void free() noexcept override {
    scratch_.free();
    moves_.free();
  }

  Traffic traffic() const override { return calls_.traffic(); }

  std::string_view algorithm(const Collective& c) const override {
    return NcclMoves::takes(c.kind) || is_native(c) ? "nccl" : "nccl_shards";
  }

 private:
  static int most_members() { return static_cast<int>(kMostReduceInputs); }
  std::size_t me() const { return static_cast<std::size_t>(members_.rank); }
  std::size_t size() const { return static_cast<std::size_t>(members_.size); }

  // Whether members reduce in the canonical tree.
  bool has_tree() const { return members_.has_kernels && members_.size <= most_members(); }

  // NCCL connects members when they first need each other. So they make a collective, and exchange bytes as for sums in
  // the canonical tree, in which each member needs all others, and for messages of two.
  void run_first(DeviceStream& stream) {
    std::byte* const input = scratch_.at_least((size() + 3) * kPackBytes) + (size() + 2) * kPackBytes;
    calls_.all_gather(input, scratch_.data(), kFirstBytes, stream);
    Collective c;
    c.dtype = DType::kUint8;
    c.in.data = input;
    if (size() == 2 || (size() > 2 && has_tree())) exchange(c, std::vector<Shard>(size(), {0, kFirstBytes}), stream);
    calls_.wait_for(DeviceEvent(device_, stream.handle()), "the first collective of NCCL");
  }

  // Whether the result of NCCL's reduction is what is asked for.
  bool is_native(const Collective& c) const {
    const bool is_even = c.kind != CollectiveKind::kReduceScatter ||
                         std::ranges::all_of(c.counts, [&](std::size_t count) { return count == c.counts.front(); });
    const bool is_plain = c.prescale == 1.0 && c.postscale == 1.0 && std::ranges::count(c.contributors, kAbsent) == 0;
    return is_even && is_plain && nccl_op(c.dtype, c.op, c.order) && (c.divisor == 1.0 || c.divisor == members_.size);
  }

  // In place where the result lies at its place in the input. Any other result that lies there is written over values
  // that are still to be sent, so these are copied.
  void scatter(const Collective& c, DeviceStream& stream) {
    const std::size_t before = std::accumulate(c.counts.begin(), c.counts.begin() + members_.rank, std::size_t{0});
    Collective apart = c;
    const bool is_in_place = c.out.data == c.in.data + before * size_of(c.dtype);
    if (!is_in_place) apart.in.data = const_cast<std::byte*>(moves_.input_of(c, c.in.bytes, stream));
    is_native(c) ? reduce_by_nccl(apart, stream) : scatter_by_tree(apart, stream);
  }

  // The bytes that a ring moves, or a chain that ends at the root.
  void count_by_nccl(const Collective& c) {
    const std::size_t bytes = c.counts[0] * size_of(c.dtype), others = size() - 1;
    const auto root = static_cast<std::size_t>(c.root);
    switch (c.kind) {
      case CollectiveKind::kAllReduce:
        return calls_.count(2 * others * bytes / size(), 2 * others * bytes / size());
      case CollectiveKind::kReduce:
        return calls_.count(me() == root ? 0 : bytes, me() == (root + 1) % size() ? 0 : bytes);
      default:
        return calls_.count(others * bytes, others * bytes);
    }
  }

  void reduce_by_nccl(const Collective& c, DeviceStream& stream) {
    count_by_nccl(c);
    const NcclType type = *nccl_type(c.dtype);
    const NcclOp op = *nccl_op(c.dtype, c.op, c.order);
    switch (c.kind) {
      case CollectiveKind::kAllReduce:
        return calls_.run("ncclAllReduce", [&](const NcclApi& api, NcclComm comm) {
          return api.all_reduce(c.in.data, c.out.data, c.counts[0], type, op, comm, stream.handle());
        });
      case CollectiveKind::kReduce:
        return calls_.run("ncclReduce", [&](const NcclApi& api, NcclComm comm) {
          return api.reduce(c.in.data, c.out.data, c.counts[0], type, op, c.root, comm, stream.handle());
        });
      default:
        return calls_.run("ncclReduceScatter", [&](const NcclApi& api, NcclComm comm) {
          return api.reduce_scatter(c.in.data, c.out.data, c.counts[0], type, op, comm, stream.handle());
        });
    }
  }

  // The rest that cannot be cut into equal shards is reduced by each member itself, as are small tensors.
  void reduce_by_tree(const Collective& c, DeviceStream& stream) {
    const std::size_t bytes = size_of(c.dtype), count = c.counts[0];
    const bool is_small = count * bytes * size() <= kSmallBytes;
    const std::size_t most = most_elements(bytes, size());
    const std::size_t rest = is_small ? count : count % size();
    for (std::size_t done = 0; done < count - rest;) {
      const std::size_t each = std::min(most, (count - rest - done) / size());
      reduce_slice(c, done, each, stream);
      done += each * size();
    }
    if (rest > 0) reduce_at_all(c, count - rest, rest, stream);
  }

  // This member sums the shards of all others that are at its place, and hands out the sums.
  void reduce_slice(const Collective& c, std::size_t begin, std::size_t each, DeviceStream& stream) {
    std::vector<Shard> shards;
    for (std::size_t member = 0; member < size(); ++member) shards.push_back({begin + member * each, each});
    const std::size_t bytes = size_of(c.dtype), offset = shards[me()].offset * bytes;
    const bool is_for_all = c.kind == CollectiveKind::kAllReduce;
    std::byte* const sums = is_for_all || members_.rank == c.root ? c.out.data + offset : sums_for(c, shards[me()]);
    exchange(c, shards, stream);
    sum(c, shards[me()], sums, stream);
    if (is_for_all) {
      calls_.all_gather(sums, c.out.data + begin * bytes, each * bytes, stream);
    } else {
      gather(c, shards, sums, stream);
    }
  }

  void scatter_by_tree(const Collective& c, DeviceStream& stream) {
    const std::size_t bytes = size_of(c.dtype);
    const std::size_t most = most_elements(bytes, size());
    const std::size_t longest = *std::ranges::max_element(c.counts);
    for (std::size_t done = 0; done < longest; done += most) {
      std::vector<Shard> shards;
      std::size_t begin = 0;
      for (const std::size_t count : c.counts) {
        shards.push_back({begin + std::min(done, count), std::min(most, count - std::min(done, count))});
        begin += count;
      }
      exchange(c, shards, stream);
      if (shards[me()].count > 0) sum(c, shards[me()], c.out.data + done * bytes, stream);
    }
  }

  // All members get the inputs of all, and the same sums.
  void reduce_at_all(const Collective& c, std::size_t begin, std::size_t count, DeviceStream& stream) {
    const std::size_t bytes = size_of(c.dtype);
    std::byte* const all = scratch_.at_least(size() * count * bytes);
    calls_.all_gather(c.in.data + begin * bytes, all, count * bytes, stream);
    if (c.kind == CollectiveKind::kReduce && members_.rank != c.root) return;
    std::vector<const void*> inputs;
    for (std::size_t member = 0; member < size(); ++member) inputs.push_back(all + member * count * bytes);
    reduce(c, inputs, c.out.data + begin * bytes, count, stream);
  }

  // Room in scratch_ for the shards of all members that are at this one's place, which begin in_packs() bytes apart,
  // and for their sums behind them. It is aligned as this member's own shard is.
  std::byte* room_for(const Collective& c, const Shard& shard) {
    const std::size_t bytes = size_of(c.dtype);
    std::byte* const room = scratch_.at_least((size() + 1) * in_packs(shard.count * bytes) + kPackBytes);
    return room + reinterpret_cast<std::uintptr_t>(c.in.data + shard.offset * bytes) % kPackBytes;
  }
  std::byte* sums_for(const Collective& c, const Shard& shard) {
    return room_for(c, shard) + size() * in_packs(shard.count * size_of(c.dtype));
  }

  // Each member sends the others' shards of its input, and gets its own of theirs in room_for() them.
  void exchange(const Collective& c, const std::vector<Shard>& shards, DeviceStream& stream) {
    const std::size_t bytes = size_of(c.dtype), mine = shards[me()].count * bytes;
    std::byte* const all = room_for(c, shards[me()]);
    calls_.run("ncclSend and ncclRecv", [&](const NcclApi&, NcclComm) {
      const auto call = [&](std::size_t peer) {
        if (peer == me()) return kNcclSuccess;
        const std::size_t there = shards[peer].count * bytes;
        int error = kNcclSuccess;
        if (there > 0) error = calls_.send(c.in.data + shards[peer].offset * bytes, there, peer, stream);
        if (mine == 0 || (error != kNcclSuccess && error != kNcclInProgress)) return error;
        return calls_.receive(all + peer * in_packs(mine), mine, peer, stream);
      };
      return calls_.grouped(call, size());
    });
  }

  // The root gets the sums of all.
  void gather(const Collective& c, const std::vector<Shard>& shards, const std::byte* sums, DeviceStream& stream) {
    const std::size_t bytes = size_of(c.dtype);
    const auto root = static_cast<std::size_t>(c.root);
    calls_.run("ncclSend and ncclRecv", [&](const NcclApi&, NcclComm) {
      if (me() != root) return calls_.send(sums, shards[me()].count * bytes, root, stream);
      const auto call = [&](std::size_t peer) {
        if (peer == me()) return kNcclSuccess;
        return calls_.receive(c.out.data + shards[peer].offset * bytes, shards[peer].count * bytes, peer, stream);
      };
      return calls_.grouped(call, size());
    });
  }

  // Reduces what exchange() has brought, and this member's own shard.
  void sum(const Collective& c, const Shard& shard, std::byte* out, DeviceStream& stream) {
    const std::size_t bytes = size_of(c.dtype);
    const std::byte* const all = room_for(c, shard);
    std::vector<const void*> inputs;
    for (std::size_t member = 0; member < size(); ++member)
      inputs.push_back(all + member * in_packs(shard.count * bytes));
    inputs[me()] = c.in.data + shard.offset * bytes;
    reduce(c, inputs, out, shard.count, stream);
  }

  // inputs: by member. Those that are absent are no leaves.
  void reduce(const Collective& c, const std::vector<const void*>& inputs, std::byte* out, std::size_t count,
              DeviceStream& stream) {
    std::vector<std::int64_t> ids;
    std::vector<const void*> leaves;
    std::vector<std::pair<std::int64_t, const void*>> present;
    for (std::size_t member = 0; member < size(); ++member) {
      if (c.contributors[member] != kAbsent) present.emplace_back(c.contributors[member], inputs[member]);
    }
    std::ranges::sort(present);
    for (const auto& [id, input] : present) ids.push_back(id), leaves.push_back(input);
    const std::vector<TreeStep> tree = canonical_tree(ids);
    const DeviceReduction reduction{c.dtype, c.op,  leaves.data(), leaves.size(), tree.data(), tree.size(),
                                    out,     count, c.prescale,    c.postscale,   c.divisor};
    device_.check(device_.api().reduce(&reduction, stream.handle()), "reducing");
  }

  const CudaDevice device_;
  const NcclMembers members_;
  NcclCalls calls_;
  NcclMoves moves_;
  DeviceScratch& scratch_;
};

}  // namespace

std::unique_ptr<DeviceGroup> make_nccl_group(std::shared_ptr<const NcclApi> api, DeviceStream& stream,
                                             const NcclMembers& members, Pause pause, DeviceScratch& scratch) {
  return std::make_unique<NcclGroup>(std::move(api), stream, members, std::move(pause), scratch);
}

}  // namespace horo
