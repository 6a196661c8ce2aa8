// The sending side of the control link: messages are queued in memory and written as the streams take them.
#pragma once

#include <cstddef>
#include <list>
#include <vector>

#include "horo/base/mutex.h"
#include "horo/base/time.h"
#include "ring/transport/stream.h"

namespace horo {

// A peer is identified by its place in `streams`, which outlive the outbox. All calls by any thread. One thread at a
// time holds the writing role and writes the messages of all peers.
class ControlOutbox {
 public:
  using Bytes = std::vector<std::byte>;

  explicit ControlOutbox(std::vector<Stream*> streams);

  void put(std::size_t at, Bytes bytes);
  // The same with messages that are in a list already; allocates no memory.
  void put_prepared(std::size_t at, std::list<Bytes>& messages) noexcept;
  // Queues the message in front of all messages of which no byte was written.
  void put_urgent(std::size_t at, const Bytes& bytes);
  // Writes the queued messages; blocks until all are written or `until` is reached.
  void flush(TimePoint until) noexcept;

  bool has_unsent(std::size_t at) const;
  std::size_t queued_bytes(std::size_t at) const;

 private:
  struct Peer {
    std::list<Bytes> queue;  // a list, because an insertion does not move the message that is being written
    std::size_t sent = 0;    // bytes of the first message
    std::size_t queued_bytes = 0;
    bool is_broken = false;
  };

  bool has_unsent() const;
  bool write_some(std::size_t at);

  const std::vector<Stream*> streams_;
  std::vector<pollfd> polls_;  // used by the holder of the writing role
  mutable Mutex mutex_;
  CondVar changed_;
  bool is_writing_ GUARDED_BY(mutex_) = false;  // a thread holds the writing role
  std::vector<Peer> peers_ GUARDED_BY(mutex_);
};

}  // namespace horo
