// First all members meet, by messages of the transport: so a difference between them is a Mismatch, and who does not
// come is named, as everywhere. Only then MPI begins, chunk by chunk in memory of ours, several chunks at a time. A
// chunk is what a caller's elements are as partial results, scaled before and after by the same kernels as everywhere.
#include "ring/group/mpi_sums.h"

#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "horo/base/error.h"
#include "horo/base/say.h"

namespace horo {
namespace {

constexpr std::size_t kMpiChunkBytes = 256 << 10;
constexpr std::size_t kSeenBytes = 16 * kMpiChunkBytes;
constexpr int kLooksBeforeNaps = 20;  // each of 100 us at most
constexpr std::chrono::microseconds kShortestMpiNap{50};
constexpr std::chrono::microseconds kLongestMpiNap{1'000};

// For what a member that left in good order, its part being done, had still on the way.
constexpr std::chrono::seconds kLeftPatience{1};

constexpr TreeStep kAlone[] = {{0}};

ReduceOp op_for_mpi(ReduceOp op) {
  return op == ReduceOp::kAverage ? ReduceOp::kSum : op;
}

bool mpi_has(DType dtype, ReduceOp op) {
  const bool is_arithmetic = op == ReduceOp::kSum || op == ReduceOp::kAverage || op == ReduceOp::kProduct;
  if (op == ReduceOp::kCustom || !supports(dtype, op)) return false;
  if (is_integer(dtype)) return !is_arithmetic || size_of(dtype) >= 4;
  return is_arithmetic && (dtype == DType::kFloat32 || dtype == DType::kFloat64 || is_complex(dtype));
}

std::size_t chunk_elements(const Collective& c) {
  return kMpiChunkBytes / size_of(c.dtype);
}

Shard chunk_of(const Collective& c, std::size_t chunk) {
  const std::size_t begin = chunk * chunk_elements(c);
  return {begin, std::min(chunk_elements(c), c.counts[0] - begin)};
}

// So that members who bring something else under the same names hear of it.
std::uint64_t hash_with_shape(const Collective& c) {
  std::uint64_t hash = c.key_hash;
  for (const std::uint64_t word :
       {std::uint64_t{c.counts[0]}, static_cast<std::uint64_t>(c.dtype), static_cast<std::uint64_t>(c.op)}) {
    hash = (hash ^ word) * 0x100000001b3;  // FNV-1a's
  }
  return hash;
}

// Open MPI allocates as many bytes for each sum as are summed, and frees them. glibc gives what is free at the end of
// the heap back to the kernel, page by page, unless it has seen larger allocations come and go: here is one.
void teach_malloc() {
  void* volatile memory = std::malloc(kSeenBytes);
  std::free(memory);
}

void nap_for(Duration time) {
  const timespec timeout{0, std::chrono::nanoseconds(time).count()};
  ::ppoll(nullptr, 0, &timeout, nullptr);
}

}  // namespace

MpiSums::MpiSums(const Party& party, std::shared_ptr<MpiWorld> world) : party_(party), world_(std::move(world)) {
  teach_malloc();
}

bool MpiSums::takes(const Collective& c) {
  const auto is_here = [](std::int64_t contributor) { return contributor != kAbsent; };
  return c.kind == CollectiveKind::kAllReduce && c.order == Order::kFast && c.channel == kChannel &&
         mpi_has(c.dtype, c.op) && std::all_of(c.contributors.begin(), c.contributors.end(), is_here);
}

void MpiSums::run(const Collective& c) {
  for (Slot& slot : slots_) {
    if (!slot.memory) slot.memory = world_->take_memory(kMpiChunkBytes);
  }
  await_all(c);
  try {
    sum(c);
  } catch (const std::exception& error) {
    give_up(error.what());
    throw;
  }
}

void MpiSums::await_all(const Collective& c) {
  meeting_.channel = c.channel;
  meeting_.plan = c.plan;
  meeting_.key_hash = hash_with_shape(c);
  meeting_.deadline = c.deadline;
  barrier(party_, meeting_);
}

void MpiSums::sum(const Collective& c) {
  const std::size_t chunks = pieces_for(c.counts[0], chunk_elements(c));
  left_at_ = {};
  std::size_t begun = 0;
  for (std::size_t ended = 0; ended < chunks; ++ended) {
    while (begun < std::min(chunks, ended + kSlots)) begin(c, begun++);
    await(c, slots_[ended % kSlots]);
    end(c, ended);
  }
}

void MpiSums::begin(const Collective& c, std::size_t chunk) {
  Slot& slot = slots_[chunk % kSlots];
  const Shard elements = chunk_of(c, chunk);
  const TreeInput in{c.in.data + elements.begin * size_of(c.dtype), false};
  reduce_tree({c.dtype, c.op, scaling_of(c), true, nullptr}, kAlone, {&in, 1}, slot.memory.get(), elements.size);
  const MpiReduction reduction{c.dtype, op_for_mpi(c.op)};
  check(world_->api().all_reduce(world_->comm(), reduction, slot.memory.get(), static_cast<int>(elements.size),
                                 &slot.request));
}

void MpiSums::end(const Collective& c, std::size_t chunk) {
  const Shard elements = chunk_of(c, chunk);
  const TreeInput in{slots_[chunk % kSlots].memory.get(), true};
  std::byte* const out = c.out.data + elements.begin * size_of(c.dtype);
  reduce_tree({c.dtype, c.op, scaling_of(c), false, nullptr}, kAlone, {&in, 1}, out, elements.size);
}

// MPI wakes nobody, and does its sums in these looks: first many with the core offered to others in between, then naps.
void MpiSums::await(const Collective& c, Slot& slot) {
  Duration nap = kShortestMpiNap;
  for (int looks = 1; !lookout_.look([&] { return is_done(slot); }); ++looks) {
    look_around(c);
    if (looks < kLooksBeforeNaps) continue;
    nap_for(nap);
    nap = std::min<Duration>(2 * nap, kLongestMpiNap);
  }
}

bool MpiSums::is_done(Slot& slot) {
  if (slot.request == nullptr) return true;
  bool done = false;
  int bytes = 0;
  check(world_->api().test(&slot.request, &done, &bytes));
  return done;
}

// MPI says neither who died nor that somebody gave up: the transport does.
void MpiSums::look_around(const Collective& c) {
  looked_at_ = (looked_at_ + 1) % party_.size();
  const int rank = party_.members[static_cast<std::size_t>(looked_at_)];
  const int self = party_.transport.rank();
  if (rank != self && party_.transport.has_left(rank)) heed_leaver(rank);
  if (Clock::now() < c.deadline) return;
  const std::string why = say("rank ", self, ": MPI_Iallreduce on channel ", c.channel, ", plan ", c.plan,
                              " has not ended at the deadline (HORO_DEADLINE_MS); MPI does not say for whom it waits");
  party_.transport.abort(-1, why);
  throw PeerLost(-1, why, Evidence::kLate);
}

void MpiSums::heed_leaver(int rank) {
  if (left_at_ == TimePoint()) left_at_ = Clock::now();
  if (Clock::now() < left_at_ + kLeftPatience) return;
  const std::string why =
      say("rank ", party_.transport.rank(), ": rank ", rank, " left while MPI_Iallreduce was under way");
  party_.transport.abort(rank, why);
  throw PeerLost(rank, why);
}

void MpiSums::check(int error) const {
  if (error != 0) throw std::runtime_error(say("MPI_Iallreduce: ", world_->text_of(error)));
}

// MPI cannot take such a request back: it keeps the memory.
void MpiSums::give_up(const char* why) noexcept {
  world_->give_up(why);
  for (Slot& slot : slots_) {
    if (slot.request != nullptr) world_->keep(std::move(slot.memory));
    slot.request = nullptr;
  }
}

std::unique_ptr<MpiSums> make_mpi_sums(const Party& party, const Members& members,
                                       const AlgorithmOverrides& overrides) {
  const auto wish = overrides.names.find(CollectiveKind::kAllReduce);
  const bool is_wished = wish != overrides.names.end() && wish->second == kByMpi;
  if (!is_wished || members.set != 0 || party.size() < 2 || party.size() != party.transport.size()) return nullptr;
  auto world = members.mpi;
  return world ? std::make_unique<MpiSums>(party, std::move(world)) : nullptr;
}

}  // namespace horo
