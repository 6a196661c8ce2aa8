// The time of a packet has three parts: queueing at the link's rate, transmission, and propagation. Random numbers are
// hashes of the seed and the segment's number, not the output of a generator with a state, so that a fate does not
// depend on earlier segments.
#include "tools/relay/link.h"

#include <algorithm>

namespace horo::tools::relay {
namespace {

constexpr std::chrono::milliseconds kLate{1};

enum About : std::uint64_t { kLoss, kOrder, kJitter, kCorruption, kChange, kAbouts };

// splitmix64's finalizer (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t segment, std::uint64_t about) {
  return mix(mix(seed) ^ mix(segment * kAbouts + about));
}

Duration seconds_as_time(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

double as_seconds(Duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

void Link::set(const LinkSettings& settings) {
  settings_ = settings;
  if (settings_.passage != Passage::kCut) return;
  for (const InFlight& one : in_flight_) counters_.cut += segments_of(one.packet);
  in_flight_.clear();
}

// In [0, 1).
double Link::chance(std::uint64_t segment, std::uint64_t about) const {
  return static_cast<double>(random_bits(seed_, segment, about) >> 11) * 0x1p-53;
}

Link::Fate Link::fate_of(std::uint64_t segment) const {
  return {.is_lost = chance(segment, kLoss) < settings_.loss,
          .is_late = chance(segment, kOrder) < settings_.reorder,
          .is_corrupt = chance(segment, kCorruption) < settings_.corrupt};
}

void Link::push(Packet packet, TimePoint now) {
  const std::size_t segments = segments_of(packet);
  const std::uint64_t first = counters_.segments;
  counters_.segments += segments;
  counters_.bytes += wire_bytes(packet);
  if (settings_.passage == Passage::kCut) {
    counters_.cut += segments;
    return;
  }
  free_at_ = std::max(free_at_, now);
  if (as_seconds(free_at_ - now) * settings_.bits_per_second / 8 > static_cast<double>(settings_.queue_bytes)) {
    counters_.dropped += segments;
  } else if (settings_.loss + settings_.reorder + settings_.corrupt == 0) {
    send(std::move(packet), first, Duration::zero(), now);
  } else {
    push_apart(packet, segments, now);
  }
}

// Consecutive segments without a fate stay in one train, because a train costs the kernels as much as one segment.
void Link::push_apart(const Packet& train, std::size_t segments, TimePoint now) {
  const std::uint64_t first = counters_.segments - segments;
  std::size_t plain = 0;  // consecutive segments before number i
  for (std::size_t i = 0; i < segments; ++i) {
    const Fate fate = fate_of(first + i);
    if (fate.is_plain()) {
      ++plain;
      continue;
    }
    if (plain > 0) send(slice(train, i - plain, plain), first + i - plain, Duration::zero(), now);
    plain = 0;
    apply(fate, slice(train, i, 1), first + i, now);
  }
  if (plain > 0) send(slice(train, segments - plain, plain), first + segments - plain, Duration::zero(), now);
}

void Link::apply(const Fate& fate, Packet packet, std::uint64_t segment, TimePoint now) {
  if (fate.is_lost) {
    ++counters_.lost;
    return;
  }
  if (fate.is_corrupt && corrupt(packet, random_bits(seed_, segment, kChange))) ++counters_.corrupted;
  counters_.late += fate.is_late ? 1 : 0;
  send(std::move(packet), segment, fate.is_late ? Duration(kLate) : Duration::zero(), now);
}

void Link::send(Packet packet, std::uint64_t segment, Duration more, TimePoint now) {
  free_at_ = std::max(free_at_, now);
  if (settings_.bits_per_second > 0) {
    free_at_ += seconds_as_time(8 * static_cast<double>(wire_bytes(packet)) / settings_.bits_per_second);
  }
  const Duration jitter = seconds_as_time(as_seconds(settings_.jitter) * chance(segment, kJitter));
  const TimePoint arrival = std::max(last_arrival_, free_at_ + settings_.delay + jitter);
  if (more == Duration::zero()) last_arrival_ = arrival;
  in_flight_.push_back({arrival + more, sent_++, std::move(packet)});
  std::push_heap(in_flight_.begin(), in_flight_.end());
}

std::optional<Packet> Link::pop(TimePoint now) {
  const std::optional<TimePoint> first = next();
  if (!first || *first > now) return std::nullopt;
  std::pop_heap(in_flight_.begin(), in_flight_.end());
  Packet packet = std::move(in_flight_.back().packet);
  in_flight_.pop_back();
  return packet;
}

std::optional<TimePoint> Link::next() const {
  if (in_flight_.empty() || settings_.passage == Passage::kStalled) return std::nullopt;
  return in_flight_.front().arrival;
}

}  // namespace horo::tools::relay
