#include "ring/link_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <sstream>

#include "ring/reduce.h"
#include "ring/waiting.h"

namespace horo {
namespace {

constexpr int kBatches = 5;                      // of each kind of exchange, and one before that does not count
constexpr int kSmallTurns = 6, kLargeTurns = 3;  // in a batch
constexpr int kSumTurns = 7;
constexpr int kMostPeers = 3;
constexpr std::size_t kSumBytes = 64 << 10;  // of each input
constexpr std::uint64_t kPlan = 1;
// What a fit may say: nothing is faster than memory, nor slower than a line to another continent.
constexpr double kLeastSeconds = 1e-9, kMostSeconds = 10;
constexpr double kLeastPerByte = 1e-12, kMostPerByte = 1e-3;

double seconds_between(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double>(end - begin).count();
}

template <std::size_t kSize>
double middle(std::array<double, kSize> values) {
  std::nth_element(values.begin(), values.begin() + kSize / 2, values.end());
  return values[kSize / 2];
}

double bounded(double value, double least, double most) {
  return std::isfinite(value) ? std::clamp(value, least, most) : most;
}

// small = latency + share * 2 message: each rank sends one and receives one, on a core that `share` ranks share.
LinkCost fit_link(const LinkSample& sample, double share) {
  const double small = bounded(sample.small, kLeastSeconds, kMostSeconds);
  const double more = sample.several - sample.small;
  const double ends = sample.peers > 1 ? more / (sample.peers - 1) : small / 2;  // of a core's time for two ends
  LinkCost link;
  // At least a twentieth of the time is work, and at least a fifth is not.
  link.message = bounded(ends, small / 20, small * 0.8) / (2 * share);
  link.latency = small - 2 * share * link.message;
  const double slope = (sample.large - sample.small) / static_cast<double>(LinkSample::kLargeBytes);
  link.byte = bounded(slope, kLeastPerByte, kMostPerByte) / (2 * share);
  return link;
}

class Meter {
 public:
  Meter(Transport& transport, const std::vector<int>& hosts, TimePoint deadline)
      : transport_(transport), hosts_(hosts), deadline_(deadline) {}

  // Ranks exchange with those so many further on, if they are inside (or outside) their host.
  LinkSample sample(bool inside) {
    const std::vector<int> strides = this->strides(inside);
    LinkSample sample;
    if (strides.empty()) return sample;
    sample.peers = static_cast<int>(strides.size());
    sample.small = exchange(inside, {strides.front()}, LinkSample::kSmallBytes);
    sample.several = exchange(inside, strides, LinkSample::kSmallBytes);
    sample.large = exchange(inside, {strides.front()}, LinkSample::kLargeBytes);
    return sample;
  }

 private:
  int size() const { return static_cast<int>(hosts_.size()); }
  bool matches(int rank, int other, bool inside) const {
    return (hosts_[static_cast<std::size_t>(rank)] == hosts_[static_cast<std::size_t>(other)]) == inside;
  }

  // Those with which most ranks find somebody, the same on all ranks.
  std::vector<int> strides(bool inside) const {
    std::vector<std::pair<int, int>> found;  // how many do not, stride
    for (int stride = 1; stride < size(); ++stride) {
      int pairs = 0;
      for (int rank = 0; rank < size(); ++rank) pairs += matches(rank, (rank + stride) % size(), inside) ? 1 : 0;
      if (pairs > 0) found.emplace_back(size() - pairs, stride);
    }
    std::sort(found.begin(), found.end());
    std::vector<int> strides;
    for (std::size_t i = 0; i < found.size() && i < kMostPeers; ++i) strides.push_back(found[i].second);
    return strides;
  }

  // Of a batch the mean: where ranks share cores, one waits long, and then finds several turns' messages.
  double exchange(bool inside, const std::vector<int>& strides, std::size_t bytes) {
    const int turns = bytes == LinkSample::kSmallBytes ? kSmallTurns : kLargeTurns;
    std::array<double, kBatches> times{};
    in_.resize(strides.size() * bytes);
    out_.resize(bytes);
    for (int batch = -1; batch < kBatches; ++batch) {
      const TimePoint begin = Clock::now();
      for (int turn = 0; turn < turns; ++turn) exchange_once(inside, strides, bytes);
      if (batch >= 0) times[static_cast<std::size_t>(batch)] = seconds_between(begin, Clock::now()) / turns;
    }
    return middle(times);
  }

  void exchange_once(bool inside, const std::vector<int>& strides, std::size_t bytes) {
    const int me = transport_.rank();
    std::vector<Transport::Op> ops;
    const Tag tag{0, kPlan, 0, 0};
    for (std::size_t i = 0; i < strides.size(); ++i) {
      const int from = (me - strides[i] + size()) % size();
      if (matches(from, me, inside))
        ops.push_back(transport_.post_recv(from, tag, std::span(in_).subspan(i * bytes, bytes)));
    }
    for (const int stride : strides) {
      const int to = (me + stride) % size();
      if (matches(me, to, inside)) ops.push_back(transport_.post_send(to, tag, out_));
    }
    transport_.wait(ops, deadline_);
  }

  Transport& transport_;
  const std::vector<int>& hosts_;
  const TimePoint deadline_;
  std::vector<std::byte> in_, out_;
};

double sum_byte_seconds() {
  constexpr std::array<TreeStep, 3> kTree{TreeStep{0}, TreeStep{1}, TreeStep{TreeStep::kJoin}};
  std::vector<std::byte> one(kSumBytes), other(kSumBytes);
  const std::array<TreeInput, 2> inputs{TreeInput{one.data()}, TreeInput{other.data()}};
  std::array<double, kSumTurns> times{};
  for (double& time : times) {
    const TimePoint begin = Clock::now();
    reduce_tree({}, kTree, inputs, one.data(), kSumBytes / sizeof(float));
    time = seconds_between(begin, Clock::now());
  }
  return middle(times) / (2 * kSumBytes);
}

// The most of all ranks.
template <std::size_t kSize>
void take_most(Group& group, std::array<double, kSize>& values, TimePoint deadline) {
  Collective c;
  c.op = ReduceOp::kMax;
  c.dtype = DType::kFloat64;
  c.counts = {values.size()};
  for (int rank = 0; rank < group.size(); ++rank) c.contributors.push_back(rank);
  c.in = c.out = {reinterpret_cast<std::byte*>(values.data()), sizeof(values)};
  c.deadline = deadline;
  c.plan = kPlan;
  c.what = "what messages cost";
  run(group, c);
}

}  // namespace

MachineCost fit(const WorldSample& sample) {
  MachineCost machine = usual_costs();
  machine.cores = bounded(sample.cores, 1, 1e6);
  const double share = std::max(1.0, sample.ranks_of_host / machine.cores);
  machine.sum_byte = bounded(sample.sum_byte, kLeastPerByte, kMostPerByte);
  if (sample.inside.small > 0) machine.inside = fit_link(sample.inside, share);
  if (sample.between.small > 0) {
    machine.between = fit_link(sample.between, share);
    // All ranks of a host sent at once: the wire may have been what they waited for, or their cores.
    machine.rails = 1;
    machine.between.wire_byte = 2 * share * machine.between.byte / sample.ranks_of_host;
    machine.between.byte = std::min(machine.between.byte, machine.inside.byte);
  }
  return machine;
}

MachineCost measure_costs(Transport& transport, Group& group, const std::vector<int>& hosts, TimePoint deadline) {
  Meter meter(transport, hosts, deadline);
  WorldSample sample;
  sample.inside = meter.sample(true);
  sample.between = meter.sample(false);
  std::map<int, int> ranks;
  for (const int host : hosts) sample.ranks_of_host = std::max(sample.ranks_of_host, ++ranks[host]);
  const auto cores = static_cast<double>(cores_granted());
  std::array<double, 8> values{sample.inside.small,  sample.inside.large,  sample.inside.several,  sum_byte_seconds(),
                               sample.between.small, sample.between.large, sample.between.several, -cores};
  take_most(group, values, deadline);
  sample.inside = {values[0], values[1], values[2], sample.inside.peers};
  sample.between = {values[4], values[5], values[6], sample.between.peers};
  sample.sum_byte = values[3];
  sample.cores = -values[7];
  return fit(sample);
}

std::string say(const MachineCost& machine) {
  std::ostringstream out;
  out.precision(2);
  const auto link = [&](const char* name, const LinkCost& cost) {
    out << name << " a message takes " << 1e6 * cost.latency << " us and " << 1e6 * cost.message
        << " us of a core at each end, a byte " << 1e9 * cost.byte << " ns of it";
  };
  link("inside a host", machine.inside);
  link(", between hosts", machine.between);
  out << " and " << 1e9 * machine.between.wire_byte << " ns of the wire, summing one " << 1e9 * machine.sum_byte
      << " ns; " << machine.cores << " cores";
  return out.str();
}

}  // namespace horo
