// The Transport over streams: each peer is reached through a socket, shared memory or MPI.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "ring/shm/arena.h"
#include "ring/transport.h"
#include "ring/transport/keep_warm.h"
#include "ring/transport/stream_progress.h"
#include "ring/transport/stream_state.h"

namespace horo {

class StreamTransport final : public Transport {
 public:
  StreamTransport(const Config& config, const Identity& self, std::vector<Connection> connections,
                  std::shared_ptr<ShmArenas> arenas);
  ~StreamTransport() override;

  int rank() const override { return self_.rank; }
  int size() const override { return self_.size; }
  Op post_send(int peer, const Tag& tag, std::span<const std::byte> out) override;
  Op post_recv(int peer, const Tag& tag, std::span<std::byte> in) override;
  void wait(std::span<const Op> ops, TimePoint deadline) override;
  void abort(int origin, const std::string& reason) noexcept override;
  void leave() noexcept override;
  bool has_left(int peer) override;
  TimePoint tick() noexcept override;
  void stop_checksums() override;
  int first_dead() const noexcept override { return arenas_ ? arenas_->first_dead() : -1; }
  Traffic traffic(std::uint32_t channel) const override;
  std::uint64_t kernel_bytes_sent_to(int peer) const override;

 private:
  // What a waiting thread does next: return, move bytes with the progress role, or check again.
  enum class Turn { kDone, kProgress, kAgain };

  Turn next_turn(std::span<const Op> ops, TimePoint deadline);
  Turn next_turn_for_notices();
  Turn take_role() REQUIRES(state_.mutex);
  void progress(TimePoint until);
  void return_role();
  void flush_notices();
  void check_peers(std::span<const Op> ops, TimePoint deadline) REQUIRES(state_.mutex);
  std::string late_text(std::span<const Op> ops) const REQUIRES(state_.mutex);
  void throw_if_failed() REQUIRES(state_.mutex);
  bool begin_abort(int origin, const std::string& reason) noexcept;
  void end_abort() noexcept;

  const Config config_;
  const Identity self_;
  const std::shared_ptr<ShmArenas> arenas_;
  const PeerLost no_memory_;  // out_of_memory_error()
  StreamState state_;
  StreamProgress progress_;  // by the holder of the progress role
  KeepWarm keep_warm_;

  bool was_used_ GUARDED_BY(state_.mutex) = false;      // since the last tick()
  bool has_released_ GUARDED_BY(state_.mutex) = false;  // the memory of operations, after a failure
  bool is_aborted_ GUARDED_BY(state_.mutex) = false;    // a thread sends abort notices, or has sent them
  bool has_notified_ GUARDED_BY(state_.mutex) = false;  // it has sent them
  bool is_leaving_ GUARDED_BY(state_.mutex) = false;    // leave() was called
};

}  // namespace horo
