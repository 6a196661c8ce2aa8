// What is still to be written to the control link's peers: queued in memory and written as the streams take it.
#pragma once

#include <cstddef>
#include <list>
#include <vector>

#include "horo/base/mutex.h"
#include "horo/base/time.h"
#include "ring/transport/stream.h"

namespace horo {

// Peers go by their number in `streams`, which live as long as the outbox. Any thread may call anything; whoever holds
// the writing role writes for all.
class ControlOutbox {
 public:
  using Bytes = std::vector<std::byte>;

  explicit ControlOutbox(std::vector<Stream*> streams);

  void put(std::size_t at, Bytes bytes);
  // The same with messages that lie in a list already: takes no memory.
  void put_prepared(std::size_t at, std::list<Bytes>& messages) noexcept;
  // Overtakes every message that has not begun.
  void put_urgent(std::size_t at, const Bytes& bytes);
  // Writes what the streams take; waits for more room until `patience` has come.
  void flush(TimePoint patience) noexcept;

  bool has_unsent(std::size_t at) const;
  std::size_t queued_bytes(std::size_t at) const;

 private:
  struct Peer {
    std::list<Bytes> queue;  // an insertion moves none of the others, so one may be written meanwhile
    std::size_t sent = 0;    // of the first
    std::size_t queued_bytes = 0;
    bool is_broken = false;
  };

  bool has_unsent() const;
  bool write_some(std::size_t at);

  const std::vector<Stream*> streams_;
  std::vector<pollfd> polls_;  // of whoever holds the writing role
  mutable Mutex mutex_;
  CondVar changed_;
  bool is_writing_ GUARDED_BY(mutex_) = false;  // somebody holds the writing role
  std::vector<Peer> peers_ GUARDED_BY(mutex_);
};

}  // namespace horo
