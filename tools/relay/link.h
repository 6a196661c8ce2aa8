// Link: one direction of a line between two hosts: how long packets take, and which of them are lost, late or changed.
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
  kStalled,  // nothing arrives, nothing is lost: all of it arrives once the link is open again
  kCut,      // all is lost, also what is under way
};

struct LinkSettings {
  Duration delay{};            // of every packet
  Duration jitter{};           // up to so much more; packets keep their order
  double loss = 0;             // of a segment: probability
  double reorder = 0;          // of a segment: to be overtaken by all that come within a millisecond
  double corrupt = 0;          // of a segment with TCP payload; checksums do not show it
  double bits_per_second = 0;  // of an Ethernet; 0: without limit
  std::size_t queue_bytes = std::size_t{64} << 20;  // waiting for their turn at that rate; what comes then is lost
  Passage passage = Passage::kOpen;
};

struct LinkCounters {
  std::uint64_t segments = 0;                       // that came
  std::uint64_t bytes = 0;                          // of them, on the wire
  std::uint64_t lost = 0, late = 0, corrupted = 0;  // segments, by chance
  std::uint64_t dropped = 0;                        // segments: the queue was full
  std::uint64_t cut = 0;                            // segments that met a cut
};

class Link {
 public:
  // The fate of the n-th segment depends on the seed, on n and on the settings of that moment alone.
  explicit Link(std::uint64_t seed) : seed_(seed) {}

  const LinkSettings& settings() const { return settings_; }
  const LinkCounters& counters() const { return counters_; }
  void set(const LinkSettings& settings);

  void push(Packet packet, TimePoint now);
  // What has arrived by now, one at a time.
  std::optional<Packet> pop(TimePoint now);
  // When the next one arrives; none: nothing is under way, or it is stalled.
  std::optional<TimePoint> next() const;

 private:
  struct UnderWay {
    TimePoint arrival;
    std::uint64_t number;  // of equal times the first to have come
    Packet packet;
    // Which is later: the first to arrive is on top of a heap.
    bool operator<(const UnderWay& other) const {
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
  void meet(const Fate& fate, Packet packet, std::uint64_t segment, TimePoint now);
  void send(Packet packet, std::uint64_t segment, Duration more, TimePoint now);

  const std::uint64_t seed_;
  LinkSettings settings_;
  LinkCounters counters_;
  TimePoint free_at_{};       // when all that came has left
  TimePoint last_arrival_{};  // of those that keep their order
  std::uint64_t sent_ = 0;
  std::vector<UnderWay> under_way_;  // a heap
};

}  // namespace horo::tools::relay
