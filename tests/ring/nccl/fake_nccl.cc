// A fake of libnccl.so.2 over the fake of CUDA, with which it shares a library. Ranks are threads or processes: a
// communicator is a mesh of Unix sockets. It has what makes NCCL hard to use:
//
// - Communicators are non-blocking: a call is in progress for a while, and its work is on the stream only then. So an
//   event that is recorded too early does not cover it.
// - Members connect to the peers that an operation needs at the first such operation, for sends and receives apart from
//   those of other collectives, and may fail then.
// - The collectives of one device run one after the other, so opposite orders on two ranks never end. Such an order
//   is reported, where the ranks are threads (fake_orders.h).
// - Floats are summed in an order of its own.
// - A collective with a rank that is gone never ends, but for an abort; then its output is garbage.
//
// HORO_FAKE_NCCL_VERSION (default 22907) is its version. HORO_FAKE_NCCL_STUCK=3 lets the third operation of each
// communicator of this process never end, 3@1 that of member 1 alone; -1 lets no communicator connect.
// HORO_FAKE_NCCL_ERROR=3, or 3@1, lets it never end, with an error of the network. With HORO_FAKE_NCCL_SLOW=1 the
// network of member 1 takes 200 ms. HORO_FAKE_NCCL_HANGS=1: ncclCommAbort does not return. Member 1 cannot take part in
// ncclCommInit with HORO_FAKE_NCCL_UNREACHABLE=1, and with HORO_FAKE_NCCL_UNCONNECTED=1 it cannot connect to the others
// at its first operation; the others wait for it until they abort.

#include "tests/ring/nccl/fake_nccl.h"

#include <cstdarg>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ring/nccl/nccl_api.h"
#include "tests/ring/cuda/fake_cuda.h"
#include "tests/ring/nccl/fake_comm.h"
#include "tests/ring/nccl/fake_sums.h"

namespace fake_nccl {
namespace {

using horo::CudaStream, horo::NcclConfig, horo::NcclId, horo::NcclOp, horo::NcclType;

// What one call does: it adds what it sends and expects, and takes what has come.
struct Memory {
  void* data = nullptr;
  std::size_t bytes = 0;
};
struct Part {
  std::function<void(const Comm&, std::vector<Exchange>&)> begin, end;
  Memory out;
  int peer = -1;  // the only one; -1: all members
};

std::set<Channel> channels_of(const Comm& comm, const std::vector<Part>& parts) {
  std::set<Channel> channels;
  for (const Part& part : parts) {
    if (part.peer >= 0) channels.emplace(true, part.peer);
    for (int peer = 0; part.peer < 0 && peer < comm.size; ++peer) channels.emplace(false, peer);
  }
  return channels;
}

void run_parts(const CommPtr& comm, std::vector<Part>& parts, bool is_stuck) {
  const std::lock_guard kernel(kernels_of(comm->device));
  std::vector<Exchange> exchanges(static_cast<std::size_t>(comm->size));
  for (Part& part : parts) part.begin(*comm, exchanges);
  while (is_stuck && !comm->is_aborted) nap(1'000);
  if (run_exchange(*comm, exchanges)) {
    for (Part& part : parts) part.end(*comm, exchanges);
  } else {
    for (Part& part : parts) {
      if (part.out.bytes > 0) std::memset(fake_cuda::alias_of(part.out.data), 0xee, part.out.bytes);
    }
  }
}

// In progress: the work is put on the stream by another thread, later.
int launch(const CommPtr& comm, std::vector<Part> parts, CudaStream stream) {
  if (comm->state != kSuccess) return comm->state == kInProgress ? kInvalidArgument : comm->state.load();
  comm->state = kInProgress;
  const int number = ++comm->operations;
  const bool has_error = is_chosen("HORO_FAKE_NCCL_ERROR", *comm, number);
  const bool is_stuck = has_error || is_chosen("HORO_FAKE_NCCL_STUCK", *comm, number);
  orders.begin(comm->device, {comm->name, number});
  ++comm->running;
  const std::lock_guard lock(comms_mutex);
  comm->threads.emplace_back([comm, parts = std::move(parts), stream, is_stuck, has_error, number]() mutable {
    nap(static_cast<long>(std::random_device{}() % 200));
    if (!connect_channels(*comm, channels_of(*comm, parts))) {
      --comm->running;
      comm->state = comm->is_aborted ? kInvalidUsage : kSystemError;
      return;
    }
    fake_cuda::run_long(stream, [comm, parts = std::move(parts), is_stuck, number]() mutable {
      run_parts(comm, parts, is_stuck);
      orders.end({comm->name, number}, comm->size);
      --comm->running;
    });
    comm->state = comm->is_aborted ? kInvalidUsage : has_error ? kRemoteError : kSuccess;
  });
  return kInProgress;
}

struct Group {
  int depth = 0;
  CommPtr comm;
  CudaStream stream = nullptr;
  std::vector<Part> parts;
};
thread_local Group group;

// The last two arguments of a call: the communicator and the stream.
struct Target {
  CommPtr comm;
  CudaStream stream = nullptr;
  std::size_t size() const { return comm ? static_cast<std::size_t>(comm->size) : 0; }
};

Target target_in(std::va_list& rest) {
  void* const comm = va_arg(rest, void*);
  return {find(comm), va_arg(rest, void*)};
}

int add(const Target& target, Part part) {
  const CommPtr& comm = target.comm;
  if (!comm || fake_cuda::current_device() != comm->device) return kInvalidArgument;
  if (group.depth == 0) return launch(comm, {std::move(part)}, target.stream);
  if (group.comm && (group.comm != comm || group.stream != target.stream)) return kInvalidUsage;
  group.comm = comm;
  group.stream = target.stream;
  group.parts.push_back(std::move(part));
  return kSuccess;
}

void append(std::vector<std::byte>& to, const void* from, std::size_t bytes) {
  const std::byte* const first = fake_cuda::alias_of(from);
  to.insert(to.end(), first, first + bytes);
}

// The next bytes that have come from the peer.
std::vector<std::byte> take(Exchange& exchange, std::size_t bytes) {
  const auto end = exchange.in.begin() + static_cast<std::ptrdiff_t>(bytes);
  std::vector<std::byte> taken(exchange.in.begin(), end);
  exchange.in.erase(exchange.in.begin(), end);
  return taken;
}

using Inputs = std::vector<std::vector<std::byte>>;  // by member

// Each member sends these bytes to each other one, and `end` gets the inputs of all.
Part all_to_all_others(std::span<const std::byte> in, Memory out, const std::function<void(const Comm&, Inputs)>& end) {
  Part part;
  part.out = out;
  const auto own = std::make_shared<std::vector<std::byte>>();
  part.begin = [=](const Comm& comm, std::vector<Exchange>& exchanges) {
    append(*own, in.data(), in.size());
    for (std::size_t peer = 0; peer < exchanges.size(); ++peer) {
      if (static_cast<int>(peer) == comm.rank) continue;
      exchanges[peer].out.insert(exchanges[peer].out.end(), own->begin(), own->end());
      exchanges[peer].expected += in.size();
    }
  };
  part.end = [=](const Comm& comm, std::vector<Exchange>& exchanges) {
    Inputs inputs;
    for (std::size_t peer = 0; peer < exchanges.size(); ++peer) {
      inputs.push_back(static_cast<int>(peer) == comm.rank ? *own : take(exchanges[peer], in.size()));
    }
    end(comm, std::move(inputs));
  };
  return part;
}

std::span<const std::byte> bytes_at(const void* data, std::size_t bytes) {
  return {static_cast<const std::byte*>(data), bytes};
}

void write(void* out, std::span<const std::byte> values) {
  if (!values.empty()) std::memcpy(fake_cuda::alias_of(out), values.data(), values.size());
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int ncclGetVersion(int* version) {
  *version = nccl_number_from("HORO_FAKE_NCCL_VERSION", 22'907);
  return kSuccess;
}

int ncclGetUniqueId(NcclId* id) {
  std::random_device random;
  const std::string name = "horo-fake-nccl-" + std::to_string(::getpid()) + "-" + std::to_string(random());
  std::copy(name.begin(), name.end(), id->bytes.begin());
  return kSuccess;
}

int ncclCommInitRankConfig(void** handle, int size, NcclId id, int rank, NcclConfig* config) {
  if (config->size != sizeof(NcclConfig) || config->magic != 0xcafebeef || config->is_blocking != 0) {
    return kInvalidArgument;
  }
  if (rank == nccl_number_from("HORO_FAKE_NCCL_UNREACHABLE", -1)) return kSystemError;
  const auto comm = std::make_shared<Comm>();
  comm->size = size;
  comm->rank = rank;
  comm->device = fake_cuda::current_device();
  comm->name = id.bytes.data();
  comm->sockets.assign(static_cast<std::size_t>(size), -1);
  const std::lock_guard lock(comms_mutex);
  comms[comm.get()] = comm;
  ++open_comms;
  *handle = comm.get();
  comm->threads.emplace_back([comm] { meet_all(*comm); });
  return kInProgress;
}

int ncclCommFinalize(void* handle) {
  const CommPtr comm = find(handle);
  if (!comm || comm->state != kSuccess || comm->is_finalized.exchange(true)) return kInvalidArgument;
  if (fake_cuda::is_without("comm_finalize")) return kSuccess;
  comm->state = kInProgress;
  const std::lock_guard lock(comms_mutex);
  comm->threads.emplace_back([comm] {
    while (!comm->is_aborted && !comm->proxy.is_empty()) nap(100);
    comm->state = kSuccess;
  });
  return kInProgress;
}

int ncclCommAbort(void* handle) {
  const CommPtr comm = find(handle);
  if (!comm) return kInvalidArgument;
  while (nccl_number_from("HORO_FAKE_NCCL_HANGS", 0) != 0) nap(10'000);
  if (fake_cuda::is_without("comm_abort")) return kSuccess;
  comm->is_aborted = true;
  std::vector<std::jthread> threads;
  {
    const std::lock_guard lock(comms_mutex);
    comms.erase(handle);
    threads.swap(comm->threads);
  }
  threads.clear();
  comm->proxy_thread = {};
  while (comm->running > 0) nap(1'000);
  for (const int fd : comm->sockets) {
    if (fd >= 0) ::close(fd);
  }
  if (comm->listener >= 0) ::close(comm->listener);
  orders.forget(comm->name);
  --open_comms;
  return kSuccess;
}

int ncclCommGetAsyncError(void* handle, int* result) {
  const CommPtr comm = find(handle);
  if (!comm) return kInvalidArgument;
  *result = fake_cuda::is_without("comm_error") && comm->has_met ? kSuccess : comm->state.load();
  return kSuccess;
}

void fake_nccl_counts(FakeNcclCounts* counts) {
  *counts = {open_comms, orders.cycles()};
}

const char* ncclGetErrorString(int result) {
  return result == kInvalidArgument ? "invalid argument" : "an error of the fake";
}

const char* ncclGetLastError(void*) {
  return "";
}

int ncclGroupStart() {
  ++group.depth;
  return kSuccess;
}

int ncclGroupEnd() {
  if (group.depth == 0) return kInvalidUsage;
  if (--group.depth > 0 || !group.comm) return kSuccess;
  const Group all = std::exchange(group, {});
  return launch(all.comm, all.parts, all.stream);
}

// The functions with more than five parameters take the others as callers on Linux pass them: as if they were variable.

int ncclAllReduce(const void* in, void* out, std::size_t count, NcclType type, ...) {
  std::va_list rest;
  va_start(rest, type);
  const auto op = static_cast<NcclOp>(va_arg(rest, int));
  const Target target = target_in(rest);
  va_end(rest);
  const std::size_t bytes = count * size_of(type);
  return add(target, all_to_all_others(bytes_at(in, bytes), {out, bytes}, [=](const Comm&, Inputs inputs) {
               write(out, reduced(std::move(inputs), type, op));
             }));
}

int ncclReduce(const void* in, void* out, std::size_t count, NcclType type, ...) {
  std::va_list rest;
  va_start(rest, type);
  const auto op = static_cast<NcclOp>(va_arg(rest, int));
  const int root = va_arg(rest, int);
  const Target target = target_in(rest);
  va_end(rest);
  return add(target, all_to_all_others(bytes_at(in, count * size_of(type)), {}, [=](const Comm& comm, Inputs inputs) {
               if (comm.rank == root) write(out, reduced(std::move(inputs), type, op));
             }));
}

int ncclReduceScatter(const void* in, void* out, std::size_t count, NcclType type, ...) {
  std::va_list rest;
  va_start(rest, type);
  const auto op = static_cast<NcclOp>(va_arg(rest, int));
  const Target target = target_in(rest);
  va_end(rest);
  const std::size_t each = count * size_of(type);
  return add(target,
             all_to_all_others(bytes_at(in, each * target.size()), {out, each}, [=](const Comm& comm, Inputs inputs) {
               const std::vector<std::byte> all = reduced(std::move(inputs), type, op);
               write(out, std::span(all).subspan(each * static_cast<std::size_t>(comm.rank), each));
             }));
}

int ncclAllGather(const void* in, void* out, std::size_t count, NcclType type, ...) {
  std::va_list rest;
  va_start(rest, type);
  const Target target = target_in(rest);
  va_end(rest);
  const std::size_t bytes = count * size_of(type);
  return add(target,
             all_to_all_others(bytes_at(in, bytes), {out, bytes * target.size()}, [=](const Comm&, Inputs inputs) {
               auto* to = static_cast<std::byte*>(out);
               for (const auto& input : inputs) write(to, input), to += bytes;
             }));
}

int ncclBroadcast(const void* in, void* out, std::size_t count, NcclType type, ...) {
  std::va_list rest;
  va_start(rest, type);
  const int root = va_arg(rest, int);
  const Target target = target_in(rest);
  va_end(rest);
  const std::size_t bytes = count * size_of(type);
  return add(target, all_to_all_others(bytes_at(in, bytes), {out, bytes}, [=](const Comm&, Inputs inputs) {
               write(out, inputs[static_cast<std::size_t>(root)]);
             }));
}

int ncclSend(const void* in, std::size_t count, NcclType type, int peer, ...) {
  std::va_list rest;
  va_start(rest, peer);
  const Target target = target_in(rest);
  va_end(rest);
  Part part;
  part.peer = peer;
  part.begin = [=](const Comm&, std::vector<Exchange>& exchanges) {
    append(exchanges[static_cast<std::size_t>(peer)].out, in, count * size_of(type));
  };
  part.end = [](const Comm&, std::vector<Exchange>&) {};
  return add(target, std::move(part));
}

int ncclRecv(void* out, std::size_t count, NcclType type, int peer, ...) {
  std::va_list rest;
  va_start(rest, peer);
  const Target target = target_in(rest);
  va_end(rest);
  const std::size_t bytes = count * size_of(type);
  Part part;
  part.out = {out, bytes};
  part.peer = peer;
  part.begin = [=](const Comm&, std::vector<Exchange>& exchanges) {
    exchanges[static_cast<std::size_t>(peer)].expected += bytes;
  };
  part.end = [=](const Comm&, std::vector<Exchange>& exchanges) {
    write(out, take(exchanges[static_cast<std::size_t>(peer)], bytes));
  };
  return add(target, std::move(part));
}
}
#pragma GCC visibility pop

}  // namespace fake_nccl
