// Counts bytes, measures no times: the bytes that each algorithm of each collective sends by horo's counters, against
// the bytes of its schedule and the kernel's TCP_INFO, and the bytes that leave each host.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <numeric>
#include <set>

#include "horo/base/shard.h"
#include "horo/engine/startup_agreement.h"
#include "ring/codec/codec_table.h"
#include "ring/group/choose.h"
#include "ring/group/coded_all_reduce.h"
#include "ring/group/two_level.h"
#include "ring/reduce/reduce.h"
#include "ring/schedule/schedule_check.h"
#include "ring/schedule/schedule_parts.h"
#include "tools/horo/bench/bench.h"
#include "tools/horo/bench/world.h"

namespace horo::tools {
namespace {

using Kind = CollectiveKind;

constexpr std::size_t kElements = 5'160'960;  // of all members' parts together: divisible by all numbers of parts
constexpr double kMostPercent = 0.5;
constexpr double kBarriers = 64 << 10;  // bytes: upper bound for the barriers around a collective
constexpr int kWidth = 17;

// The bytes that a rank sends, and that all ranks of each host send to other hosts.
struct Sent {
  double bytes = 0;
  std::vector<double> left_host;
};

double percent_off(double value, double expected) {
  if (expected == 0) return value == 0 ? 0 : 100;
  return std::abs(value / expected - 1) * 100;
}

class WireBench {
 public:
  WireBench(const Config& config, Links links, std::vector<int> hosts)
      : config_(config), links_(std::move(links)), hosts_(std::move(hosts)), members_(hosts_.size()) {
    std::iota(members_.begin(), members_.end(), 0);
    plain_ = group("", hosts_);
  }

  // Returns the largest deviation in percent.
  double run() {
    for (const NamedMaker& maker : all_schedule_makers()) measure_maker(maker, DType::kFloat32);
    for (const NamedMaker& maker : all_schedule_makers()) {
      if (reduces(maker.kind)) measure_maker(maker, DType::kBFloat16);  // its partial sums are float32
    }
    for (const auto& codec : built_in_codecs()) measure_codec(*codec);
    return most_;
  }

  // The same for the bytes between hosts. Inside a host the links share memory.
  double run_two_level() {
    Collective c = base(Kind::kAllReduce);
    std::vector<float> values(kElements, 1);
    c.counts = {kElements};
    c.in = c.out = {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)};
    if (!TwoLevel::takes(c, hosts_, true)) return 0;
    const auto selected = group(std::string("all_reduce=") + kTwoLevel, hosts_);
    selected->run(c);  // the first call exchanges the addresses of the shared memory
    c.plan = plan_ += 2;
    if (selected->algorithm(c) != kTwoLevel) return 0;
    const Counted counted = count(hosts_, [&] { selected->run(c); });
    report("all_reduce", kTwoLevel, c.dtype, sent_in_two_levels(c), counted);
    return most_;
  }

 private:
  int size() const { return static_cast<int>(members_.size()); }
  Transport& transport() { return *links_.transport; }
  std::size_t me() const { return static_cast<std::size_t>(config_.rank); }

  std::unique_ptr<Group> group(const std::string& algorithms, const std::vector<int>& hosts) {
    Config config = config_;
    config.algorithms = algorithms;
    return make_transport_group(links_, {members_, 0, hosts}, config, counters_);
  }

  // On one host each pair of ranks counts as a host.
  std::vector<int> hosts_for(const NamedMaker& maker) const {
    const bool has_levels = std::set<int>(hosts_.begin(), hosts_.end()).size() > 1;
    const bool depends_on_hosts = maker.make == hierarchical_all_reduce || maker.make == hosts_first_all_reduce;
    if (has_levels || !depends_on_hosts) return hosts_;
    std::vector<int> pairs;
    for (int rank = 0; rank < size(); ++rank) pairs.push_back(rank / 2);
    return pairs;
  }

  Collective base(Kind kind) {
    Collective c;
    c.kind = kind;
    c.plan = plan_ += 2;
    c.deadline = Clock::now() + config_.deadline;
    c.what = "bench wire";
    if (reduces(kind)) c.contributors.assign(members_.begin(), members_.end());
    return c;
  }

  void barrier() { plain_->run(base(Kind::kBarrier)); }

  std::vector<double> over_ranks(std::vector<double> values, ReduceOp op) {
    Collective c = base(Kind::kAllReduce);
    c.op = op;
    c.dtype = DType::kFloat64;
    c.counts = {values.size()};
    c.in = c.out = {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(double)};
    plain_->run(c);
    return values;
  }

  // Runs a collective and counts its bytes, by horo's counters and by the kernel's.
  struct Counted {
    Sent sent;
    double kernel_off = 0;  // percent
  };
  template <class Run>
  Counted count(const std::vector<int>& hosts, const Run& run) {
    barrier();
    const auto before = static_cast<double>(transport().traffic(0).bytes_sent);
    std::vector<double> to(members_.size());
    for (std::size_t peer = 0; peer < to.size(); ++peer) to[peer] = -kernel_bytes(peer);
    run();
    Counted counted;
    counted.sent.bytes = static_cast<double>(transport().traffic(0).bytes_sent) - before;
    barrier();  // after it, all ranks have received all earlier data
    double kernel = 0;
    std::vector<double> left(members_.size(), 0);
    for (std::size_t peer = 0; peer < to.size(); ++peer) {
      to[peer] += kernel_bytes(peer);
      kernel += to[peer];
      if (hosts[peer] != hosts[me()]) left[static_cast<std::size_t>(hosts[me()])] += to[peer];
    }
    counted.kernel_off = percent_off(static_cast<double>(transport().traffic(0).bytes_sent) - before, kernel);
    counted.sent.left_host = over_ranks(left, ReduceOp::kSum);
    return counted;
  }
  double kernel_bytes(std::size_t peer) {
    return static_cast<double>(transport().kernel_bytes_sent_to(static_cast<int>(peer)));
  }

  void measure_maker(const NamedMaker& maker, DType dtype) {
    const auto hosts = hosts_for(maker);
    Collective c = base(maker.kind);
    c.dtype = dtype;
    const auto n = members_.size();
    const bool is_cut = c.kind == Kind::kAllReduce || c.kind == Kind::kReduce || c.kind == Kind::kBroadcast;
    c.counts.assign(is_cut ? 1 : c.kind == Kind::kAllToAll ? n * n : n, 0);
    for (std::size_t& count : c.counts) count = kElements / c.counts.size();
    const Shape shape = shape_of(c, size(), hosts);
    std::vector<Schedule> schedules;
    for (int member = 0; member < size(); ++member) schedules.push_back(maker.make(shape, member));
    c.order = schedules.front().order;
    const Cost cost = cost_of(shape, schedules, chunk_bytes(schedules.front(), c));
    const auto selected = group(std::string(name_of(c.kind)) + "=" + maker.name, hosts);
    std::vector<std::byte> in(kElements * size_of(dtype)), out(in.size());
    c.in = {in.data(), in.size()};
    c.out = {out.data(), out.size()};
    const Counted counted = count(hosts, [&] { selected->run(c); });
    Sent said{static_cast<double>(cost.sent[me()]), {cost.left_hosts.begin(), cost.left_hosts.end()}};
    report(std::string(name_of(c.kind)), maker.name, dtype, said, counted);
  }

  Sent sent_in_two_levels(const Collective& c) const {
    Sent sent{0, std::vector<double>(members_.size())};
    for (int member = 0; member < size(); ++member) {
      const Schedule& schedule =
          TwoLevel::assignment_of(c, hosts_, member, {usual_costs(), config_.segment_bytes}).schedule;
      const ChunkBytes bytes = chunk_bytes(schedule, c);
      double all = 0;
      for (const Round& round : schedule.rounds) {
        for (const Message& message : round.send) {
          const auto first = bytes.as_it_is.begin() + message.part.first;
          all += static_cast<double>(std::accumulate(first, first + message.part.count, std::size_t{0}));
        }
      }
      sent.left_host[static_cast<std::size_t>(hosts_[static_cast<std::size_t>(member)])] += all;
      if (member == config_.rank) sent.bytes = all;
    }
    return sent;
  }

  static ChunkBytes chunk_bytes(const Schedule& schedule, const Collective& c) {
    ChunkBytes bytes;
    for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
      const auto at = static_cast<std::size_t>(chunk);
      const std::size_t count =
          c.counts.size() == 1 ? shard_of(c.counts[0], schedule.chunks, chunk).size : c.counts[at];
      bytes.as_it_is.push_back(count * size_of(c.dtype));
      bytes.accumulating.push_back(count * accumulator_bytes(c.dtype, c.op));
    }
    return bytes;
  }

  // Coded parts are sent to their owners, coded sums to all.
  void measure_codec(const Codec& codec) {
    Collective c = base(Kind::kAllReduce);
    std::vector<float> values(kElements, 1);
    auto* data = reinterpret_cast<std::byte*>(values.data());
    const CodedTensor tensor{data, data, values.size(), 0, nullptr};
    CodedScratch scratch;
    const Counted counted = count(hosts_, [&] { run_coded(*plain_, c, codec, {&tensor, 1}, scratch); });
    const double all = static_cast<double>(codec.wire_bytes(kElements)), n = size();
    Sent said{2 * (n - 1) / n * all, {}};
    report("all_reduce", "coded " + codec.name(), DType::kFloat32, said, counted);
  }

  void report(const std::string& kind, const std::string& algorithm, DType dtype, const Sent& said,
              const Counted& counted) {
    double hosts_off = 0, left = 0;
    for (std::size_t host = 0; host < said.left_host.size(); ++host) {
      const double got = counted.sent.left_host[host];
      hosts_off = std::max(hosts_off,
                           said.left_host[host] == 0 && got <= kBarriers ? 0 : percent_off(got, said.left_host[host]));
      left = std::max(left, counted.sent.left_host[host]);
    }
    const auto worst = over_ranks(
        {percent_off(counted.sent.bytes, said.bytes), counted.kernel_off, hosts_off, counted.sent.bytes, said.bytes},
        ReduceOp::kMax);
    const double most = std::max({worst[0], worst[1], worst[2]});
    most_ = std::max(most_, most);
    if (config_.rank != 0) return;
    std::cout << row({std::to_string(size()), kind, algorithm, std::string(name_of(dtype)), fixed(worst[3], 0),
                      fixed(worst[4], 0), fixed(worst[0], 4), fixed(worst[1], 4), left > 0 ? fixed(left, 0) : "-",
                      left > 0 ? fixed(worst[2], 4) : "-", most <= kMostPercent ? "ok" : "OVER"},
                     kWidth)
              << std::flush;
  }

  const Config config_;
  Links links_;
  Counters counters_;
  const std::vector<int> hosts_;
  std::vector<int> members_;
  std::unique_ptr<Group> plain_;
  std::uint64_t plan_ = 0;
  double most_ = 0;
};

}  // namespace

int bench_wire(Config config, bool with_header) {
  const Config as_asked = config;
  config.transport = "tcp";  // shared memory has no bytes on a wire
  Links links = find_others(config, 0);
  Counters counters;
  const StartupAgreement compared = compare_settings(links, config, counters);
  if (with_header && config.rank == 0) {
    std::cout
        << machine_header(compared.topology) << "# one collective of " << kElements
        << " elements in all; sent: bytes of the busiest rank, headers "
        << "included; left host: of the\n# busiest host to others (on one host, algorithms that depend on hosts "
        << "count each pair of ranks as a host);\n# off: deviation from the schedule in percent (off kernel: from "
        << "TCP_INFO) of the worst rank or host, at most 0.5\n"
        << row({"ranks", "collective", "algorithm", "type", "sent", "schedule", "off", "off kernel", "left host", "off",
                ""},
               kWidth);
  }
  double most = WireBench(config, std::move(links), compared.hosts).run();
  if (as_asked.transport != "tcp" && TwoLevel::has_levels(compared.hosts)) {
    most = std::max(most, WireBench(as_asked, find_others(as_asked, 0), compared.hosts).run_two_level());
  }
  return most <= kMostPercent ? 0 : 1;
}

}  // namespace horo::tools
