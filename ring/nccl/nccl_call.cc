#include "ring/nccl/nccl_call.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "horo/base/error.h"
#include "horo/base/log.h"
#include "horo/base/say.h"

namespace horo {
namespace {

constexpr std::chrono::microseconds kBusy{100};  // a call takes some 10 us
constexpr std::chrono::microseconds kFirstPause{20}, kLongestPause{1'000};

}  // namespace

void NcclCalls::connect(int size, const NcclId& id, int rank, std::chrono::milliseconds at_most) {
  NcclConfig config;
  config.is_blocking = 0;
  size_ = static_cast<std::size_t>(size);
  connect_time_ = at_most;
  until_ = Clock::now() + at_most;
  finish("ncclCommInitRankConfig", api_->comm_init(&comm_, size, id, rank, &config));
}

void NcclCalls::check_time(const char* name) const {
  if (Clock::now() < until_) return;
  throw std::runtime_error(
      say(name, ": not all ranks are connected after ", connect_time_.count(), " ms (4 times HORO_DEADLINE_MS)"));
}

void NcclCalls::wait_for(const DeviceEvent& event, const char* name) {
  for (Duration pause = kFirstPause; !event.is_complete(); pause = std::min<Duration>(2 * pause, kLongestPause)) {
    check_time(name);
    check();
    pause_(pause);
  }
}

void NcclCalls::run(const char* name, const Call& call) {
  finish(name, call(*api_, comm_));
}

// The group is ended also after an error, which would otherwise stay for the next one.
int NcclCalls::grouped(const std::function<int(std::size_t)>& call, std::size_t count) const {
  int error = api_->group_start();
  if (error != kNcclSuccess) return error;
  for (std::size_t i = 0; i < count && (error == kNcclSuccess || error == kNcclInProgress); ++i) error = call(i);
  const int ended = api_->group_end();
  return error == kNcclSuccess || error == kNcclInProgress ? ended : error;
}

int NcclCalls::send(const std::byte* in, std::size_t bytes, std::size_t to, const DeviceStream& stream) {
  count(bytes, 0);
  return api_->send(in, bytes, NcclType::kUint8, static_cast<int>(to), comm_, stream.handle());
}

int NcclCalls::receive(std::byte* out, std::size_t bytes, std::size_t from, const DeviceStream& stream) {
  count(0, bytes);
  return api_->receive(out, bytes, NcclType::kUint8, static_cast<int>(from), comm_, stream.handle());
}

// As a ring moves them.
void NcclCalls::all_gather(const std::byte* in, std::byte* out, std::size_t bytes, const DeviceStream& stream) {
  count((size_ - 1) * bytes, (size_ - 1) * bytes);
  run("ncclAllGather", [&](const NcclApi& api, NcclComm comm) {
    return api.all_gather(in, out, bytes, NcclType::kUint8, comm, stream.handle());
  });
}

void NcclCalls::check() const {
  int result = kNcclSuccess;
  if (comm_ == nullptr || api_->comm_error(comm_, &result) != kNcclSuccess) return;
  if (result != kNcclSuccess && result != kNcclInProgress) fail("a collective of NCCL", result);
}

void NcclCalls::finalize() {
  if (comm_ == nullptr || std::exchange(is_finalized_, true)) return;
  try {
    finish("ncclCommFinalize", api_->comm_finalize(comm_));
  } catch (const ShutDown&) {
    throw;
  } catch (const std::runtime_error& error) {
    log_debug(say("a communicator of NCCL is ended without its peers: ", error.what()));
  }
}

void NcclCalls::finish(const char* name, int result) {
  Duration pause = kFirstPause;
  const TimePoint busy_until = result == kNcclInProgress ? Clock::now() + kBusy : TimePoint();
  while (result == kNcclInProgress) {
    check_time(name);
    if (Clock::now() >= busy_until) {
      pause_(pause);
      pause = std::min<Duration>(2 * pause, kLongestPause);
    }
    if (const int error = api_->comm_error(comm_, &result); error != kNcclSuccess) result = error;
  }
  if (result != kNcclSuccess) fail(name, result);
}

void NcclCalls::fail(const char* name, int result) const {
  const char* const more = api_->last_error(comm_);
  const std::string text = say(name, ": ", api_->error_text(result), more == nullptr || *more == '\0' ? "" : ": ",
                               more == nullptr ? "" : more);
  const bool is_of_peer = result == kNcclSystemError || result == kNcclRemoteError || result == kNcclInternalError;
  if (is_connected_ && is_of_peer) throw PeerLost(-1, text, Evidence::kBroken);
  throw std::runtime_error(text);
}

void NcclCalls::abort(const CudaDevice& device) noexcept {
  if (comm_ == nullptr) return;
  if (!device.is_here()) return;
  const bool is_entered = device.api().enter(device.number()) == 0;
  api_->comm_abort(comm_);
  if (is_entered) device.api().leave();
  comm_ = nullptr;
}

}  // namespace horo
