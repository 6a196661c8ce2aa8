// Messages in flight together need no term of their own in the fit: a message of 64 KiB took 22 us with three peers and
// 18 to 28 us with one. So a link has a latency, a cost per message and a cost per byte. The tree sample, in which most
// ranks wait, separates the latency from the CPU work of a message.
#include "ring/group/link_costs.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "horo/base/wire.h"
#include "ring/os/waiting.h"
#include "ring/reduce/reduce.h"

namespace horo {
namespace {

constexpr int kTreeTurns = 2, kSmallTurns = 3, kSeveralTurns = 2, kLargeTurns = 3;  // in a cycle
constexpr int kMostCycles = 7, kFewestCycles = 2;
constexpr double kSeconds = 10e-3;            // for all cycles, unless these are too few
constexpr int kNearTurns = 7, kFarTurns = 3;  // sums
constexpr int kMostPeers = 3;
constexpr std::size_t kMostStops = 4;
constexpr std::size_t kNearBytes = 64 << 10, kFarBytes = 1 << 20;  // per input: within a core's cache, and beyond it
constexpr std::uint64_t kPlan = 1;
// Bounds of a fit: no transfer is faster than memory or slower than a connection to another continent.
constexpr double kLeastSeconds = 1e-9, kMostSeconds = 10;
constexpr double kLeastPerByte = 1e-12, kMostPerByte = 1e-3;
constexpr double kMostBeyondCache = 100;  // times the cost within the cache
// In messages' work: the longest latency inside a host whose ranks share cores. There a round waits for at most one
// message of another rank. A longer time in a few turns shows the order in which ranks got their cores, and it would be
// charged for each round of a schedule.
constexpr double kMostCrowdedLatency = 1;
constexpr double kShortWork = 1e-6;  // seconds of a core per end of a message: no system call takes less

double seconds_between(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double>(end - begin).count();
}

// 0.5: the median. Zero if there are no values.
double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size()));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double bounded(double value, double least, double most) {
  return std::isfinite(value) ? std::clamp(value, least, most) : most;
}

// A measured time, and its causes: the number of rounds, and of message ends per core.
struct Timed {
  double rounds;
  double ends;
  double seconds;
};

// Fits seconds = rounds * latency + ends * message by least squares of the relative errors. Both costs are positive,
// and the latency is at most `most` times the message's cost.
void fit_messages(const std::vector<Timed>& all, double most, LinkCost& link) {
  double rr = 0, re = 0, ee = 0, r = 0, e = 0, least_each = kMostSeconds;
  for (const Timed& one : all) {
    const double rounds = one.rounds / one.seconds, ends = one.ends / one.seconds;
    rr += rounds * rounds, re += rounds * ends, ee += ends * ends;
    r += rounds, e += ends;
    least_each = std::min(least_each, 1 / ends);
  }
  const double determinant = rr * ee - re * re;
  const double slope = determinant > 0 ? (rr * e - re * r) / determinant : least_each / 2;
  // Some part of a message is CPU work, even if it is small beside a long latency.
  link.message = bounded(slope, std::min(least_each / 4, kShortWork), least_each);
  link.latency = std::max(kLeastSeconds, (r - link.message * re) / rr);
  if (link.latency <= most * link.message) return;
  link.message = (most * r + e) / (most * most * rr + 2 * most * re + ee);
  link.latency = most * link.message;
}

// The tree sample: up a binomial tree and down again. `cores`: of all its ranks together.
Timed timed_tree(const LinkSample& sample, double cores) {
  Timed tree{0, 0, bounded(sample.tree, kLeastSeconds, kMostSeconds)};
  for (int stride = 1; stride < sample.stops; stride *= 2) {
    const int messages = (sample.stops - stride + 2 * stride - 1) / (2 * stride);
    tree.rounds += 2;
    tree.ends += 2 * std::max(1.0, 2 * messages / cores);
  }
  return tree;
}

// In an exchange each rank sends and receives one message, on a core that `share` ranks share.
LinkCost fit_link(const LinkSample& sample, double share, double cores_of_tree, double most_latency) {
  std::vector<Timed> all{{1, 2 * share, bounded(sample.small, kLeastSeconds, kMostSeconds)}};
  if (sample.stops > 1) all.push_back(timed_tree(sample, cores_of_tree));
  if (sample.peers > 1) {
    all.push_back({1, 2 * share * sample.peers, bounded(sample.several, kLeastSeconds, kMostSeconds)});
  }
  LinkCost link;
  fit_messages(all, most_latency, link);
  const double small = link.latency + 2 * share * link.message;  // of the fit, which is surer than the one sample
  const double slope = (sample.large - small) / static_cast<double>(LinkSample::kLargeBytes);
  link.byte = bounded(slope, kLeastPerByte, kMostPerByte) / (2 * share);
  return link;
}

// Measures messages with ranks inside (or outside) this rank's host. A cycle has one batch of each kind of exchange, so
// that slow changes of the machine, such as the placement of ranks on cores, affect all kinds alike.
class Meter {
 public:
  Meter(Transport& transport, const std::vector<int>& hosts, bool inside, TimePoint deadline)
      : transport_(transport), hosts_(hosts), inside_(inside), deadline_(deadline), strides_(strides()) {
    if (!strides_.empty()) find_stops();
    in_.resize(std::max(strides_.size() * LinkSample::kSmallBytes, LinkSample::kLargeBytes));
    out_.resize(LinkSample::kLargeBytes);
  }

  void cycle() {
    if (strides_.empty()) return;
    const bool is_stop = at_ < stops_.size() && stops_.size() > 1;
    if (is_stop) tree_.push_back(time_of(kTreeTurns, [&] { climb(); }));
    small_.push_back(time_of(kSmallTurns, [&] { exchange(1, LinkSample::kSmallBytes); }));
    if (strides_.size() > 1) {
      several_.push_back(time_of(kSeveralTurns, [&] { exchange(strides_.size(), LinkSample::kSmallBytes); }));
    }
    large_.push_back(time_of(kLargeTurns, [&] { exchange(1, LinkSample::kLargeBytes); }));
  }

  // Drops the times measured so far: the first cycle warms up caches and connections.
  void forget() {
    for (std::vector<double>* times : {&tree_, &small_, &several_, &large_}) times->clear();
  }

  LinkSample sample() const {
    LinkSample sample{quantile(tree_, 0.5), quantile(small_, 0.5), quantile(large_, 0.5), quantile(several_, 0.5)};
    sample.stops = std::max(1, static_cast<int>(stops_.size()));
    sample.peers = std::max(1, static_cast<int>(strides_.size()));
    return sample;
  }

 private:
  int size() const { return static_cast<int>(hosts_.size()); }
  bool matches(int rank, int other) const {
    return (hosts_[static_cast<std::size_t>(rank)] == hosts_[static_cast<std::size_t>(other)]) == inside_;
  }

  // A rank exchanges with the ranks at these distances from it, if they match. The distances at which most ranks have a
  // matching peer come first. Equal on all ranks.
  std::vector<int> strides() const {
    std::vector<std::pair<int, int>> found;  // number of ranks without a peer, stride
    for (int stride = 1; stride < size(); ++stride) {
      int pairs = 0;
      for (int rank = 0; rank < size(); ++rank) pairs += matches(rank, (rank + stride) % size()) ? 1 : 0;
      if (pairs > 0) found.emplace_back(size() - pairs, stride);
    }
    std::sort(found.begin(), found.end());
    std::vector<int> strides;
    for (std::size_t i = 0; i < found.size() && i < kMostPeers; ++i) strides.push_back(found[i].second);
    return strides;
  }

  // Chooses the ranks of the tree: some ranks of this host, or one rank each of some hosts.
  void find_stops() {
    std::set<int> hosts;
    const int me = transport_.rank();
    for (int rank = 0; rank < size() && stops_.size() < kMostStops; ++rank) {
      const bool is_stop = inside_ ? matches(me, rank) : hosts.insert(hosts_[static_cast<std::size_t>(rank)]).second;
      if (is_stop) stops_.push_back(rank);
    }
    at_ = static_cast<std::size_t>(std::find(stops_.begin(), stops_.end(), me) - stops_.begin());
  }

  // The mean seconds of a turn, after one turn that synchronises the ranks. The mean, because a rank that shares its
  // core waits long and then finds the messages of several turns.
  template <class Turn>
  static double time_of(int turns, Turn turn) {
    turn();
    const TimePoint begin = Clock::now();
    for (int i = 0; i < turns; ++i) turn();
    return seconds_between(begin, Clock::now()) / turns;
  }

  void wait(const std::vector<Transport::Op>& ops) { transport_.wait(ops, deadline_); }

  void climb() {
    const auto bytes = LinkSample::kSmallBytes;
    const auto to = [&](std::size_t stop) {
      wait({transport_.post_send(stops_[stop], kTag, std::span(out_).first(bytes))});
    };
    const auto from = [&](std::size_t stop) {
      wait({transport_.post_recv(stops_[stop], kTag, std::span(in_).first(bytes))});
    };
    std::size_t stride = 1;
    for (; stride < stops_.size() && (at_ & stride) == 0; stride *= 2) {
      if (at_ + stride < stops_.size()) from(at_ + stride);
    }
    if (at_ > 0) to(at_ - stride), from(at_ - stride);
    while ((stride /= 2) > 0) {
      if (at_ + stride < stops_.size()) to(at_ + stride);
    }
  }

  void exchange(std::size_t peers, std::size_t bytes) {
    const int me = transport_.rank();
    std::vector<Transport::Op> ops;
    for (std::size_t i = 0; i < peers; ++i) {
      const int from = (me - strides_[i] + size()) % size();
      if (matches(from, me)) ops.push_back(transport_.post_recv(from, kTag, std::span(in_).subspan(i * bytes, bytes)));
    }
    for (std::size_t i = 0; i < peers; ++i) {
      const int to = (me + strides_[i]) % size();
      if (matches(me, to)) ops.push_back(transport_.post_send(to, kTag, std::span(out_).first(bytes)));
    }
    wait(ops);
  }

  static constexpr Tag kTag{0, kPlan, 0, 0};

  Transport& transport_;
  const std::vector<int>& hosts_;
  const bool inside_;
  const TimePoint deadline_;
  const std::vector<int> strides_;
  std::vector<int> stops_;
  std::size_t at_ = 0;  // this rank's place among them
  std::vector<std::byte> in_, out_;
  std::vector<double> tree_, small_, several_, large_;  // by cycle
};

// Seconds per byte that a sum of two inputs of `bytes` bytes reads.
double sum_byte_seconds(std::size_t bytes, int turns) {
  constexpr std::array<TreeStep, 3> kTree{TreeStep{0}, TreeStep{1}, TreeStep{TreeStep::kJoin}};
  std::vector<std::byte> one(bytes), other(bytes);
  const std::array<TreeInput, 2> inputs{TreeInput{one.data()}, TreeInput{other.data()}};
  std::vector<double> times(static_cast<std::size_t>(turns));
  for (double& time : times) {
    const TimePoint begin = Clock::now();
    reduce_tree({}, kTree, inputs, one.data(), bytes / sizeof(float));
    time = seconds_between(begin, Clock::now());
  }
  return quantile(times, 0.5) / (2 * static_cast<double>(bytes));
}

// Replaces each value by the largest one of all ranks.
void maximum_of_all(Group& group, std::vector<double>& values, TimePoint deadline) {
  Collective c;
  c.op = ReduceOp::kMax;
  c.dtype = DType::kFloat64;
  c.counts = {values.size()};
  for (int rank = 0; rank < group.size(); ++rank) c.contributors.push_back(rank);
  c.in = c.out = {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(double)};
  c.deadline = deadline;
  c.plan = kPlan;
  c.what = "the cost of messages";
  group.run(c);
}

// A hash of the cores that this thread may use.
std::int64_t affinity() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof(cores), &cores) != 0) return 0;
  return static_cast<std::int64_t>(hash64({reinterpret_cast<const char*>(&cores), sizeof(cores)}));
}

// The cores of the host that has the fewest. Ranks with the same affinity share cores; another affinity adds its own.
double cores_of_hosts(Group& group, const std::vector<int>& hosts, TimePoint deadline) {
  std::array<std::int64_t, 2> mine{affinity(), cores_granted()};
  std::vector<std::int64_t> all(hosts.size() * mine.size());
  Collective c;
  c.kind = CollectiveKind::kAllGather;
  c.dtype = DType::kInt64;
  c.counts.assign(hosts.size(), mine.size());
  c.in = {reinterpret_cast<std::byte*>(mine.data()), sizeof(mine)};
  c.out = {reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(std::int64_t)};
  c.deadline = deadline;
  c.plan = kPlan;
  c.what = "the number of cores";
  group.run(c);
  std::set<std::pair<int, std::int64_t>> known;  // host, affinity
  std::map<int, double> cores;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (known.emplace(hosts[rank], all[2 * rank]).second) cores[hosts[rank]] += static_cast<double>(all[2 * rank + 1]);
  }
  double fewest = HUGE_VAL;
  for (const auto& [host, count] : cores) fewest = std::min(fewest, count);
  return fewest;
}

}  // namespace

MachineCost fit(const WorldSample& sample) {
  MachineCost machine = usual_costs();
  machine.cores = bounded(sample.cores, 1, 1e6);
  const double share = std::max(1.0, sample.ranks_of_host / machine.cores);
  machine.sum_byte = bounded(sample.sum_byte, kLeastPerByte, kMostPerByte);
  machine.cache_bytes = kFarBytes;
  machine.sum_beyond_cache = bounded(sample.sum_byte_far / machine.sum_byte, 1, kMostBeyondCache);
  const double most_inside = share > 1 ? kMostCrowdedLatency : HUGE_VAL;
  if (sample.inside.small > 0) machine.inside = fit_link(sample.inside, share, machine.cores, most_inside);
  if (sample.between.small > 0) {
    machine.between = fit_link(sample.between, share, 2.0 * sample.between.stops, HUGE_VAL);
    // All ranks of a host sent at once, so they may have waited for the wire or for their cores.
    machine.rails = 1;
    machine.between.wire_byte = 2 * share * machine.between.byte / sample.ranks_of_host;
    machine.between.byte = std::min(machine.between.byte, machine.inside.byte);
  }
  return machine;
}

MachineCost measure_costs(Transport& transport, Group& group, const std::vector<int>& hosts, TimePoint deadline) {
  Meter inside(transport, hosts, true, deadline), between(transport, hosts, false, deadline);
  const auto cycle = [&] { inside.cycle(), between.cycle(); };
  const TimePoint begin = Clock::now();
  cycle();
  inside.forget(), between.forget();
  std::vector<double> first{seconds_between(begin, Clock::now())};
  maximum_of_all(group, first, deadline);
  const auto cycles = static_cast<int>(bounded(kSeconds / first.front(), kFewestCycles, kMostCycles));
  for (int i = 0; i < cycles; ++i) cycle();
  WorldSample sample;
  sample.inside = inside.sample();
  sample.between = between.sample();
  std::map<int, int> ranks;
  for (const int host : hosts) sample.ranks_of_host = std::max(sample.ranks_of_host, ++ranks[host]);
  sample.cores = cores_of_hosts(group, hosts, deadline);
  std::vector<double> values;
  for (const LinkSample* each : {&sample.inside, &sample.between}) {
    values.insert(values.end(), {each->tree, each->small, each->large, each->several, each->stops * 1.0});
  }
  values.insert(values.end(), {sum_byte_seconds(kNearBytes, kNearTurns), sum_byte_seconds(kFarBytes, kFarTurns)});
  maximum_of_all(group, values, deadline);
  std::size_t at = 0;
  for (LinkSample* each : {&sample.inside, &sample.between}) {
    *each = {values[at], values[at + 1], values[at + 2], values[at + 3], static_cast<int>(values[at + 4]), each->peers};
    at += 5;
  }
  sample.sum_byte = values[at];
  sample.sum_byte_far = values[at + 1];
  return fit(sample);
}

std::string say(const MachineCost& machine) {
  std::ostringstream out;
  out.precision(2);
  const auto link = [&](const char* name, const LinkCost& cost) {
    out << name << " a round takes " << 1e6 * cost.latency << " us, a message " << 1e6 * cost.message
        << " us of a core at each end, a byte " << 1e9 * cost.byte << " ns of it";
  };
  link("inside a host", machine.inside);
  link(", between hosts", machine.between);
  out << " and " << 1e9 * machine.between.wire_byte << " ns of the wire, summing one " << 1e9 * machine.sum_byte
      << " ns, of long tensors " << 1e9 * machine.sum_byte * machine.sum_beyond_cache << " ns; " << machine.cores
      << " cores";
  return out.str();
}

}  // namespace horo
