// Counters of a session. Every counter is a sum since the session began; any thread may add and read.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "horo/base/mutex.h"
#include "horo/base/types.h"

namespace horo {

// Bytes on the wire, frame headers included, and frames.
struct Traffic {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_received = 0;
  Traffic operator-(const Traffic& o) const {
    return {bytes_sent - o.bytes_sent, bytes_received - o.bytes_received, frames_sent - o.frames_sent,
            frames_received - o.frames_received};
  }
  void operator+=(const Traffic& o) {
    bytes_sent += o.bytes_sent, bytes_received += o.bytes_received;
    frames_sent += o.frames_sent, frames_received += o.frames_received;
  }
};

class Counters {
 public:
  // The counters of one (process set, collective, algorithm).
  struct Collectives {
    std::uint64_t count = 0;
    std::uint64_t payload_bytes = 0;  // of the tensors, as the caller sees them
    Traffic traffic;
  };
  // The same without traffic, for a frequent writer: it has the tally alone, adds from one thread at a time, and takes
  // no lock.
  class Tally {
   public:
    void add(std::uint64_t payload_bytes) {
      count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      payload_bytes_.store(payload_bytes_.load(std::memory_order_relaxed) + payload_bytes, std::memory_order_relaxed);
    }
    Collectives so_far() const {
      return {count_.load(std::memory_order_relaxed), payload_bytes_.load(std::memory_order_relaxed), {}};
    }

   private:
    std::atomic<std::uint64_t> count_{0}, payload_bytes_{0};  // sums; order nothing
  };
  // The counters of the coordinator's messages that this rank has sent.
  struct Control {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
    std::uint64_t messages_with_names = 0;
    std::uint64_t messages_with_bits = 0;  // known tensors and plans, by number
  };

  void add_collective(std::uint32_t set, CollectiveKind kind, std::string_view algorithm, std::uint64_t payload_bytes,
                      const Traffic& traffic);
  // A new tally, which lives as long as the counters.
  Tally& tally(std::uint32_t set, CollectiveKind kind, std::string_view algorithm);
  // Names a process set from now on; the world has a name already.
  void name_set(std::uint32_t set, const std::string& name);
  void add_control(const Control& sent);
  // A bucket of `tensors` was reduced; `composition` hashes its tensors' names in order.
  void add_bucket(std::uint64_t tensors, std::uint64_t composition);
  void add_packed(std::uint64_t bytes);
  void add_unpacked(std::uint64_t bytes);
  void add_submitted(std::uint64_t tensors);
  // In an elastic job: these collectives were committed, which are a round (a backward pass) or not.
  void add_commit(std::uint64_t collectives, bool is_round) {
    committed_collectives_.fetch_add(collectives, std::memory_order_relaxed);
    committed_rounds_.fetch_add(is_round ? 1 : 0, std::memory_order_relaxed);
  }

  // An error of NCCL has cost an epoch in which no rank was lost.
  void add_nccl_error() { nccl_errors_.fetch_add(1, std::memory_order_relaxed); }

  // All counters as one JSON object; docs/counters.md describes each key.
  std::string json() const;
  Control control() const;
  std::uint64_t committed_rounds() const { return committed_rounds_.load(std::memory_order_relaxed); }
  std::uint64_t nccl_errors() const { return nccl_errors_.load(std::memory_order_relaxed); }
  std::uint64_t committed_collectives() const { return committed_collectives_.load(std::memory_order_relaxed); }
  // Sum over algorithms.
  Collectives collectives(std::uint32_t set, CollectiveKind kind) const;

 private:
  using Key = std::tuple<std::uint32_t, CollectiveKind, std::string>;
  struct Entry {
    Collectives counts;
    std::list<Tally> tallies;  // a list, so that references stay valid
    Collectives sum() const;
  };

  std::atomic<std::uint64_t> committed_rounds_{0}, committed_collectives_{0}, nccl_errors_{0};  // sums; order nothing
  mutable Mutex mutex_;
  std::map<Key, Entry, std::less<>> collectives_ GUARDED_BY(mutex_);
  std::map<std::uint32_t, std::string> set_names_ GUARDED_BY(mutex_) = {{0, "world"}};
  Control control_ GUARDED_BY(mutex_);
  std::uint64_t submitted_ GUARDED_BY(mutex_) = 0;
  std::uint64_t buckets_ GUARDED_BY(mutex_) = 0;
  std::uint64_t bucketed_tensors_ GUARDED_BY(mutex_) = 0;
  std::uint64_t packed_bytes_ GUARDED_BY(mutex_) = 0;
  std::uint64_t unpacked_bytes_ GUARDED_BY(mutex_) = 0;
  std::set<std::uint64_t> compositions_ GUARDED_BY(mutex_);  // at most kMaxCompositions of them
};

}  // namespace horo
