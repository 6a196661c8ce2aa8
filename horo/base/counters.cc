// Sums behind one lock that is held for a few additions; the lanes and the engine add once per collective, not per
// byte.
#include "horo/base/counters.h"

#include <cstddef>

#include "horo/base/json_text.h"

namespace horo {
namespace {

// A job in its steady state has a handful of compositions; only a program that varies its bucket sizes has more.
constexpr std::size_t kMaxCompositions = 65'536;

// Builds {"key": value, ...}.
class JsonObject {
 public:
  JsonObject& field(std::string_view key, const std::string& json) {
    text_ += text_.empty() ? "{" : ", ";
    text_.append(json_quoted(key)).append(": ").append(json);
    return *this;
  }
  JsonObject& field(std::string_view key, std::uint64_t number) { return field(key, std::to_string(number)); }
  std::string text() const { return text_ + "}"; }

 private:
  std::string text_;
};

std::string json_of(const Counters::Control& control) {
  return JsonObject()
      .field("messages", control.messages)
      .field("bytes", control.bytes)
      .field("messages_with_names", control.messages_with_names)
      .field("messages_with_bits", control.messages_with_bits)
      .text();
}

std::string json_of(std::uint32_t set, const std::string& name, CollectiveKind kind, std::string_view algorithm,
                    const Counters::Collectives& c) {
  return JsonObject()
      .field("set", set)
      .field("set_name", json_quoted(name))
      .field("kind", json_quoted(name_of(kind)))
      .field("algorithm", json_quoted(algorithm))
      .field("count", c.count)
      .field("payload_bytes", c.payload_bytes)
      .field("bytes_sent", c.traffic.bytes_sent)
      .field("bytes_received", c.traffic.bytes_received)
      .field("frames_sent", c.traffic.frames_sent)
      .field("frames_received", c.traffic.frames_received)
      .text();
}

}  // namespace

void Counters::add_collective(std::uint32_t set, CollectiveKind kind, std::string_view algorithm,
                              std::uint64_t payload_bytes, const Traffic& traffic) {
  Key key(set, kind, algorithm);
  MutexLock lock(mutex_);
  Collectives& c = collectives_[std::move(key)].counts;
  c.count += 1;
  c.payload_bytes += payload_bytes;
  c.traffic += traffic;
}

Counters::Tally& Counters::tally(std::uint32_t set, CollectiveKind kind, std::string_view algorithm) {
  MutexLock lock(mutex_);
  return collectives_[Key(set, kind, algorithm)].tallies.emplace_back();
}

Counters::Collectives Counters::Entry::sum() const {
  Collectives all = counts;
  for (const Tally& tally : tallies) {
    const Collectives quick = tally.so_far();
    all.count += quick.count;
    all.payload_bytes += quick.payload_bytes;
  }
  return all;
}

void Counters::name_set(std::uint32_t set, const std::string& name) {
  MutexLock lock(mutex_);
  set_names_[set] = name;
}

void Counters::add_control(const Control& sent) {
  MutexLock lock(mutex_);
  control_.messages += sent.messages;
  control_.bytes += sent.bytes;
  control_.messages_with_names += sent.messages_with_names;
  control_.messages_with_bits += sent.messages_with_bits;
}

void Counters::add_bucket(std::uint64_t tensors, std::uint64_t composition) {
  MutexLock lock(mutex_);
  buckets_ += 1;
  bucketed_tensors_ += tensors;
  if (compositions_.size() < kMaxCompositions) compositions_.insert(composition);
}

void Counters::add_packed(std::uint64_t bytes) {
  MutexLock lock(mutex_);
  packed_bytes_ += bytes;
}

void Counters::add_unpacked(std::uint64_t bytes) {
  MutexLock lock(mutex_);
  unpacked_bytes_ += bytes;
}

void Counters::add_submitted(std::uint64_t tensors) {
  MutexLock lock(mutex_);
  submitted_ += tensors;
}

std::string Counters::json() const {
  MutexLock lock(mutex_);
  std::string collectives;
  for (const auto& [key, entry] : collectives_) {
    if (!collectives.empty()) collectives += ", ";
    const auto& [set, kind, algorithm] = key;
    const auto name = set_names_.find(set);
    collectives += json_of(set, name == set_names_.end() ? "" : name->second, kind, algorithm, entry.sum());
  }
  return JsonObject()
      .field("submitted", submitted_)
      .field("buckets", buckets_)
      .field("bucketed_tensors", bucketed_tensors_)
      .field("bucket_compositions", compositions_.size())
      .field("packed_bytes", packed_bytes_)
      .field("unpacked_bytes", unpacked_bytes_)
      .field("committed_rounds", committed_rounds())
      .field("committed_collectives", committed_collectives())
      .field("nccl_errors", nccl_errors())
      .field("control", json_of(control_))
      .field("collectives", "[" + collectives + "]")
      .text();
}

Counters::Control Counters::control() const {
  MutexLock lock(mutex_);
  return control_;
}

Counters::Collectives Counters::collectives(std::uint32_t set, CollectiveKind kind) const {
  MutexLock lock(mutex_);
  Collectives sum;
  for (const auto& [key, entry] : collectives_) {
    if (std::get<0>(key) != set || std::get<1>(key) != kind) continue;
    const Collectives counts = entry.sum();
    sum.count += counts.count;
    sum.payload_bytes += counts.payload_bytes;
    sum.traffic += counts.traffic;
  }
  return sum;
}

}  // namespace horo
