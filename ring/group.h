// Group: ranks that are able to run collectives together. The interface that every backend (over a Transport, shared
// memory, MPI, NCCL) implements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "horo/base/failure.h"
#include "horo/base/time.h"
#include "horo/base/types.h"
#include "ring/schedule/schedule_time.h"
#include "ring/transport.h"

namespace horo {

struct CustomOp;

inline constexpr int kHostDevice = -1;

// Memory that takes part in a collective.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int device = kHostDevice;  // or the number of a CUDA device
  void* stream = nullptr;    // on a device: the stream that uses the memory, and
  void* event = nullptr;     //   the event after which it may be read; null on the host
  std::uint64_t owner = 0;   // the Allocation that holds it, by Allocation::token; 0: the caller's own memory
};

// Memory that came from Group::allocate, aligned to 64 bytes; freed (or unmapped) with the last reference to it.
struct Allocation {
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> data;
  std::size_t bytes = 0;
  std::uint64_t token = 0;
};

// A part of a tensor that lies in several places. in and out are equal, or disjoint from all other places.
struct Piece {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;  // whole elements
};

// One collective, equal on all members except for the buffers. All kinds count elements; lengths may be zero.
//
//   kind            in                                      out
//   all_reduce      count elements                          count elements
//   reduce          count elements                          root: count elements, others: not written
//   reduce_scatter  sum(counts) elements                    counts[my index] elements
//   all_gather      counts[my index] elements               sum(counts) elements, in order of members
//   gather          counts[my index] elements               root: as all_gather, others: not written
//   scatter         root: sum(counts) elements              counts[my index] elements
//   all_to_all      parts for members, in their order       parts of members, in their order
//   broadcast       root: count elements, others: not read  count elements
//   send_recv       root: count elements, other: not read   other: count elements, root: not written
//   barrier         empty                                   empty
//
// A send_recv is for groups of two. in and out are equal (in place) or disjoint; where they differ, in is never
// written. Also in place, and without a copy: an all_gather or gather whose in lies at its place in out. Of out no more
// is written than the elements above. counts: one value for all_reduce, reduce, broadcast and send_recv; size * size
// for all_to_all, what member i has for member j at i * size + j; none for barrier; one per member for the others.
//
// Reductions: result = round(postscale * (T(prescale * widen(x)) / divisor)), T the canonical tree over `contributors`
// (Order::kCanonical) or any order (kFast); the divisor is applied for kAverage alone.
// kCustom is always canonical, in the type itself, without factors (ring/reduce/custom_op.h).
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  ReduceOp op = ReduceOp::kSum;
  const CustomOp* custom = nullptr;  // of kCustom; lives until the collective has ended
  DType dtype = DType::kFloat32;
  Order order = Order::kCanonical;
  Buffer in;
  Buffer out;
  std::span<const Piece> pieces{};  // where Group::takes_pieces(): instead of in and out, one behind the other
  std::vector<std::size_t> counts;
  int root = 0;  // index of a member: reduce, gather, scatter, broadcast; send_recv: who sends
  // Ids of the members in T, by index; kAbsent: this member has nothing to add (its in is not read; it still gets out).
  std::vector<std::int64_t> contributors;
  double prescale = 1.0;
  double postscale = 1.0;
  double divisor = 1.0;
  std::uint32_t channel = 0;
  std::uint64_t plan = 0;      // differs between collectives of a channel that are in flight together
  std::uint64_t key_hash = 0;  // of the names of the tensors
  TimePoint deadline = TimePoint::max();
  std::string what;  // for errors: "gradient conv1.weight and 11 more"
};

inline constexpr std::int64_t kAbsent = -1;

// Told once when a collective has ended; `failure` is null if it went well.
class Completion {
 public:
  virtual ~Completion() = default;
  virtual void done(FailurePtr failure) noexcept = 0;
};

// Collectives of one channel are started by one thread, in the same order on all members.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;  // index of this member
  virtual int size() const = 0;

  // Memory with which collectives are fastest. Any thread.
  virtual Allocation allocate(std::size_t bytes) = 0;

  // Begins (and possibly ends) the collective; `completion` and the buffers must live until it was told. Throws
  // std::invalid_argument before anything is sent if the collective contradicts itself.
  virtual void start(const Collective& collective, Completion& completion) = 0;
  // The same, and waits for its end; throws what ended it.
  virtual void run(const Collective& collective) = 0;

  // Whether an all_reduce like this one may bring Collective::pieces; a member may though others bring buffers. The
  // thread that starts collectives.
  virtual bool takes_pieces(const Collective& /*collective*/) const { return false; }

  // The algorithm that start() would take: a word for counters and logs. The same on all members.
  virtual std::string_view algorithm(const Collective& collective) const = 0;
};

inline void run(Group& group, const Collective& collective) {
  group.run(collective);
}

struct Members {
  std::vector<int> ranks;             // world ranks in ascending order, one's own among them
  std::uint32_t set = 0;              // process set: for counters
  std::vector<int> hosts = {};        // by member: equal numbers share a host; empty: one host
  MachineCost costs = usual_costs();  // by which algorithms are chosen; the same on all members
};

// A group over a transport, which runs every collective from a schedule (ring/group/choose.h). Transport and counters
// outlive it. Throws std::invalid_argument.
std::unique_ptr<Group> make_host_group(Transport& transport, Members members, const Config& config, Counters& counters);

}  // namespace horo
