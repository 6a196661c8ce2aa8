// Link: one direction of a line between two hosts. Determines the delay of packets and which are lost, late or changed.
// Pure: time is an argument, there is no I/O. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "horo/base/time.h"
#include "tools/relay/packet.h"

namespace horo::tools::relay {

enum class Passage {
  kOpen,
  kStalled,  // packets wait and arrive once the link is open again
  kCut,      // all packets are lost, including those in flight
};

struct LinkSettings {
  Duration delay{};    // of every packet
  Duration jitter{};   // maximum of an additional random delay; packets keep their order
  double loss = 0;     // of a segment: probability
  double reorder = 0;  // of a segment: probability of a delay of one more millisecond, without keeping the order
  double corrupt = 0;  // of a segment with TCP payload: probability; the checksums are valid
  double bits_per_second = 0;                       // of an Ethernet; 0: no limit
  std::size_t queue_bytes = std::size_t{64} << 20;  // waiting at that rate; more packets are dropped
  Passage passage = Passage::kOpen;
};

struct LinkCounters {
  std::uint64_t segments = 0;                       // that entered
  std::uint64_t bytes = 0;                          // of these, on the wire
  std::uint64_t lost = 0, late = 0, corrupted = 0;  // segments, by random choice
  std::uint64_t dropped = 0;                        // segments: the queue was full
  std::uint64_t cut = 0;                            // segments lost by a cut
};

class Link {
 public:
  // The fate of the n-th segment depends only on the seed, on n and on the settings when it enters.
  explicit Link(std::uint64_t seed) : seed_(seed) {}

  const LinkSettings& settings() const { return settings_; }
  const LinkCounters& counters() const { return counters_; }
  void set(const LinkSettings& settings);

  void push(Packet packet, TimePoint now);
  // The next packet that has arrived by `now`, if any.
  std::optional<Packet> pop(TimePoint now);
  // The arrival time of the next packet; empty: none is in flight, or the link is stalled.
  std::optional<TimePoint> next() const;

 private:
  struct InFlight {
    TimePoint arrival;
    std::uint64_t number;  // breaks ties: the packet that entered first
    Packet packet;
    // Compares arrival, the later first: the earliest arrival is on top of the heap.
    bool operator<(const InFlight& other) const {
      return arrival != other.arrival ? arrival > other.arrival : number > other.number;
    }
  };
  struct Fate {
    bool is_lost = false, is_late = false, is_corrupt = false;
    bool is_plain() const { return !is_lost && !is_late && !is_corrupt; }
  };

  double chance(std::uint64_t segment, std::uint64_t about) const;
  Fate fate_of(std::uint64_t segment) const;
  void push_apart(const Packet& train, std::size_t segments, TimePoint now);
  void apply(const Fate& fate, Packet packet, std::uint64_t segment, TimePoint now);
  void send(Packet packet, std::uint64_t segment, Duration more, TimePoint now);

  const std::uint64_t seed_;
  LinkSettings settings_;
  LinkCounters counters_;
  TimePoint free_at_{};       // when all packets that entered have been sent
  TimePoint last_arrival_{};  // of packets that keep their order
  std::uint64_t sent_ = 0;
  std::vector<InFlight> in_flight_;  // a heap
};

}  // namespace horo::tools::relay
