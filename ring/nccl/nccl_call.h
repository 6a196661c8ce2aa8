// NcclCalls: one communicator of NCCL, and how it is called. The communicator is non-blocking, so that it can be
// aborted at any time: a call returns at once, and what it enqueues is on the stream when NCCL no longer says "in
// progress". An event that is recorded before that does not cover it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "horo/base/counters.h"
#include "horo/base/time.h"
#include "ring/cuda/cuda_device.h"
#include "ring/nccl/nccl_api.h"

namespace horo {

// One thread at a time.
class NcclCalls {
 public:
  NcclCalls(std::shared_ptr<const NcclApi> api, std::function<void(Duration)> pause)
      : api_(std::move(api)), pause_(std::move(pause)) {}

  // These throw std::runtime_error, with NCCL's words, and what pause() throws; after connected() also PeerLost of an
  // unknown rank (Evidence::kBroken) for errors that the end of a rank causes. Before, they throw too if all of them
  // together take longer than at_most.
  void connect(int size, const NcclId& id, int rank, std::chrono::milliseconds at_most);
  // Blocks until the event is complete.
  void wait_for(const DeviceEvent& event, const char* name);
  // The members have made their first collectives, at which NCCL connects them.
  void connected() {
    is_connected_ = true;
    until_ = TimePoint::max();
  }
  // call(api, communicator): a result of NCCL. Returns when what it enqueues is on the stream.
  using Call = std::function<int(const NcclApi&, NcclComm)>;
  void run(const char* name, const Call& call);
  // In a call: call(0), call(1) and so on to count - 1, as one operation of NCCL.
  int grouped(const std::function<int(std::size_t)>& call, std::size_t count) const;
  // In a call: bytes to another member, and from one. Return a result of NCCL.
  int send(const std::byte* in, std::size_t bytes, std::size_t to, const DeviceStream& stream);
  int receive(std::byte* out, std::size_t bytes, std::size_t from, const DeviceStream& stream);
  // Of bytes of each member.
  void all_gather(const std::byte* in, std::byte* out, std::size_t bytes, const DeviceStream& stream);

  // The bytes of all calls. Those of run() are counted by its callers.
  const Traffic& traffic() const { return traffic_; }
  void count(std::size_t sent, std::size_t received) { traffic_ += {sent, received, 0, 0}; }

  // Throws what NCCL has found since, as run().
  void check() const;
  // What is on the device is done here: ends the communicator when its last bytes have left for the peers, which may
  // not have them yet. NCCL may wait for the peers of this host, and fail when these have ended without it: that is no
  // error. Throws what pause() throws. abort() follows. A second call has no effect.
  void finalize();
  // Ends what the communicator has on the device. No call follows; a second one has no effect.
  void abort(const CudaDevice& device) noexcept;

 private:
  void finish(const char* name, int result);
  void check_time(const char* name) const;
  [[noreturn]] void fail(const char* name, int result) const;

  const std::shared_ptr<const NcclApi> api_;
  const std::function<void(Duration)> pause_;
  NcclComm comm_ = nullptr;
  std::size_t size_ = 0;
  std::chrono::milliseconds connect_time_{};
  TimePoint until_ = TimePoint::max();
  bool is_connected_ = false, is_finalized_ = false;
  Traffic traffic_;
};

}  // namespace horo
