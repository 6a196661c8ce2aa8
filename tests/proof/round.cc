#include "tests/proof/round.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>

#include "ring/group/choose.h"
#include "ring/schedule/schedule_parts.h"
#include "tests/proof/list.h"

namespace horo::proof {
namespace {

using Kind = CollectiveKind;
using test::Wire;

class RoundAuthor {
 public:
  explicit RoundAuthor(std::uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15 + 1) { round_.seed = seed; }

  Round write() {
    round_.size = pick(1, 8);
    if (chance(40)) round_.wire = chance(50) ? Wire::kTcp : Wire::kShm;
    round_.segment_bytes =
        one_of(std::array{std::size_t{64}, std::size_t{500}, std::size_t{4096}, std::size_t{262144}});
    const int teams = pick(1, 3);
    for (int i = 0; i < teams; ++i) round_.teams.push_back(team(static_cast<std::uint32_t>(i)));
    return round_;
  }

 private:
  int pick(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<unsigned>(most - least + 1));
  }
  bool chance(int percent) { return pick(1, 100) <= percent; }
  template <class Choices>
  typename Choices::value_type one_of(const Choices& choices) {
    return choices[random_() % choices.size()];
  }

  Team team(std::uint32_t channel) {
    Team team;
    team.channel = channel;
    const bool all_ranks = channel == 0 && chance(50);
    for (int rank = 0; rank < round_.size; ++rank) {
      if (all_ranks || chance(70)) team.ranks.push_back(rank);
    }
    if (team.ranks.empty()) team.ranks.push_back(pick(0, round_.size - 1));
    const auto size = static_cast<int>(team.ranks.size());
    // One host, hosts of neighbours, or any ranks on any hosts.
    const int layout = pick(0, 2);
    for (int i = 0, host = 0; i < size; ++i) {
      if (layout == 1 && i > 0 && chance(40)) ++host;
      team.hosts.push_back(layout == 2 ? pick(0, size - 1) : host);
    }
    const int jobs = pick(1, 6);
    for (int i = 0; i < jobs; ++i) team.jobs.push_back(job(team));
    return team;
  }

  // Draws a maker and takes its kind, so that all makers are equally frequent; sometimes the group chooses the
  // algorithm.
  Job job(const Team& team) {
    const auto size = static_cast<int>(team.ranks.size());
    Job job;
    const auto& makers = all_schedule_makers();
    const NamedMaker& maker = makers[random_() % makers.size()];
    job.kind = chance(4) ? Kind::kBarrier : maker.kind;
    if (job.kind != Kind::kBarrier && chance(85)) job.algorithm = maker.name;
    job.dtype = dtype();
    job.root = pick(0, size - 1);
    job.values = random_();
    job.flavour = one_of(std::array{Flavour::kSmall, Flavour::kWide, Flavour::kWild});
    job.in_place = chance(40);
    for (int i = 0; i < size; ++i) job.misplace.push_back(chance(50) ? 0 : random_() % 64);
    add_counts(job, static_cast<std::size_t>(size));
    if (reduces(job.kind)) add_reduction(job, team, maker);
    if (job.kind == Kind::kAllReduce && chance(25)) add_codec(job);
    // Schedules from files require that all members contribute, with their indices as ids.
    std::vector<std::int64_t> numbers(reduces(job.kind) ? team.ranks.size() : 0);
    std::iota(numbers.begin(), numbers.end(), 0);
    job.from_file = !job.algorithm.empty() && chance(10);
    if (job.from_file && reduces(job.kind)) job.contributors = numbers;
    return job;
  }

  DType dtype() {
    for (;;) {
      if (const auto dtype = dtype_from(pick(0, 16))) return *dtype;
    }
  }

  void add_counts(Job& job, std::size_t size) {
    const std::array<std::size_t, 4> limits = {3, 40, 400, 3000};
    const std::size_t slices =
        job.kind == Kind::kAllToAll ? 8 : 24;  // bounded, because small segments make many messages
    const std::size_t most = std::min(one_of(limits), std::max<std::size_t>(3, slices * round_.segment_bytes / 8));
    const bool cut = job.kind == Kind::kAllReduce || job.kind == Kind::kReduce || job.kind == Kind::kBroadcast;
    std::size_t counts = size;
    if (cut) counts = 1;
    if (job.kind == Kind::kAllToAll) counts = size * size;
    if (job.kind == Kind::kBarrier) counts = 0;
    const bool even = chance(30);
    for (std::size_t i = 0; i < counts; ++i) {
      const std::size_t count = chance(15) ? 0 : random_() % (most + 1);
      job.counts.push_back(even && i > 0 ? job.counts[0] : count);
    }
  }

  // No random bits, because the result of a codec for NaNs is not specified.
  void add_codec(Job& job) {
    if (std::all_of(job.contributors.begin(), job.contributors.end(), [](auto id) { return id < 0; })) return;
    job.codec = one_of(std::array{"fp16", "bf16", "fp8", "int8"});
    job.dtype = one_of(std::array{DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16});
    job.op = chance(50) ? ReduceOp::kSum : ReduceOp::kAverage;
    job.whole = false;
    job.algorithm.clear();
    job.order = Order::kCanonical;
    if (job.flavour == Flavour::kWild) job.flavour = Flavour::kWide;
  }

  ReduceOp op(DType dtype) {
    for (;;) {
      const auto op = reduce_op_from(pick(0, 9));
      if (op && *op != ReduceOp::kAdasum && supports(dtype, *op)) return *op;
    }
  }

  void add_reduction(Job& job, const Team& team, const NamedMaker& maker) {
    job.op = op(job.dtype);
    const int most_absent = chance(50) ? 0 : chance(20) ? 100 : 30;
    std::int64_t id = pick(0, 3);
    for (std::size_t i = 0; i < team.ranks.size(); ++i) {
      job.contributors.push_back(chance(most_absent) ? kAbsent : id);
      id += chance(70) ? 1 : pick(2, chance(10) ? 1'000'000 : 9);
    }
    const std::array factors = {1.0, 1.0, 0.5, -1.25, 1.0 / 3, 0.0, 3.0};
    job.prescale = one_of(factors);
    job.postscale = one_of(factors);
    job.divisor = one_of(std::array{static_cast<double>(team.ranks.size()), 1.0, 3.0, -0.7});
    Shape shape;
    shape.kind = job.kind;
    shape.size = static_cast<int>(team.ranks.size());
    shape.root = job.root;
    shape.hosts = team.hosts;
    shape.contributors = job.contributors;
    if (job.op == ReduceOp::kCustom) {
      job.prescale = job.postscale = 1;
      job.whole = chance(40);
      return;
    }
    const bool is_fast = !job.algorithm.empty() && maker.make(shape, 0).order == Order::kFast;
    job.order = is_fast || chance(15) ? Order::kFast : Order::kCanonical;
    // Sums in any order are checked against an error bound, which requires sums that cannot overflow.
    if (job.order == Order::kFast && job.flavour == Flavour::kWild) job.flavour = Flavour::kWide;
  }

  std::mt19937_64 random_;
  Round round_;
};

bool is_one_host(const std::vector<int>& hosts) {
  return std::all_of(hosts.begin(), hosts.end(), [&](int host) { return host == hosts.front(); });
}

// Smaller rounds than this one, the greatest reductions first.
class Smaller {
 public:
  explicit Smaller(const Round& round) : round_(round) {}

  std::vector<Round> all() {
    for (std::size_t t = 0; t < round_.teams.size() && round_.teams.size() > 1; ++t) {
      Round only = round_;
      only.teams = {round_.teams[t]};
      found_.push_back(only);
    }
    for (std::size_t t = 0; t < round_.teams.size(); ++t) {
      for (std::size_t j = 0; j < round_.teams[t].jobs.size() && round_.teams[t].jobs.size() > 1; ++j) {
        Round only = round_;
        only.teams[t].jobs = {round_.teams[t].jobs[j]};
        found_.push_back(only);
      }
    }
    change_round();
    for (std::size_t t = 0; t < round_.teams.size(); ++t) {
      if (!is_one_host(round_.teams[t].hosts)) {
        add([t](Round& r) { std::fill(r.teams[t].hosts.begin(), r.teams[t].hosts.end(), 0); });
      }
      for (std::size_t j = 0; j < round_.teams[t].jobs.size(); ++j) change_job(t, j);
    }
    return std::move(found_);
  }

 private:
  void add(const std::function<void(Round&)>& change) {
    Round changed = round_;
    change(changed);
    found_.push_back(changed);
  }

  void change_round() {
    if (round_.wire != Wire::kInProcess) add([](Round& r) { r.wire = Wire::kInProcess; });
    if (round_.segment_bytes < 262144) add([](Round& r) { r.segment_bytes = 262144; });
    int last = 0;
    for (const Team& team : round_.teams) last = std::max(last, team.ranks.back());
    if (last + 1 < round_.size) add([last](Round& r) { r.size = last + 1; });
  }

  void change_job(std::size_t t, std::size_t j) {
    const auto add_to_job = [&](const std::function<void(Job&)>& change) {
      add([&](Round& r) { change(r.teams[t].jobs[j]); });
    };
    const Job& job = round_.teams[t].jobs[j];
    if (std::any_of(job.counts.begin(), job.counts.end(), [](std::size_t c) { return c > 1; })) {
      add_to_job([](Job& changed) {
        for (std::size_t& count : changed.counts) count = (count + 1) / 2;
      });
    }
    for (std::size_t i = 0; i < job.counts.size() && i < 8; ++i) {
      if (job.counts[i] > 0) add_to_job([i](Job& changed) { --changed.counts[i]; });
    }
    if (job.prescale != 1) add_to_job([](Job& changed) { changed.prescale = 1; });
    if (job.postscale != 1) add_to_job([](Job& changed) { changed.postscale = 1; });
    if (job.divisor != 1) add_to_job([](Job& changed) { changed.divisor = 1; });
    if (job.in_place) add_to_job([](Job& changed) { changed.in_place = false; });
    if (job.flavour != Flavour::kSmall) add_to_job([](Job& changed) { changed.flavour = Flavour::kSmall; });
    if (std::any_of(job.misplace.begin(), job.misplace.end(), [](std::size_t m) { return m != 0; })) {
      add_to_job([](Job& changed) { std::fill(changed.misplace.begin(), changed.misplace.end(), 0); });
    }
    std::vector<std::int64_t> plain(job.contributors.size());
    std::iota(plain.begin(), plain.end(), 0);
    if (job.contributors != plain) add_to_job([&](Job& changed) { changed.contributors = plain; });
  }

  const Round& round_;
  std::vector<Round> found_;
};

}  // namespace

std::size_t Round::jobs() const {
  std::size_t jobs = 0;
  for (const Team& team : teams) jobs += team.jobs.size();
  return jobs;
}

Round draw_round(std::uint64_t seed) {
  return RoundAuthor(seed).write();
}

std::string describe(const Job& job) {
  std::ostringstream out;
  out << name_of(job.kind);
  if (job.kind == Kind::kBarrier) return out.str();
  if (reduces(job.kind)) out << (job.whole ? " whole " : " ") << name_of(job.op) << " " << name_of(job.order);
  if (!job.codec.empty()) out << " coded as " << job.codec;
  out << " " << name_of(job.dtype) << " by " << (job.algorithm.empty() ? "rule" : job.algorithm)
      << (job.from_file ? " from a file" : "") << ", counts " << list(job.counts) << ", " << name_of(job.flavour)
      << " values " << job.values;
  if (reduces(job.kind)) out << ", contributors " << list(job.contributors);
  if (job.prescale != 1) out << ", prescale " << job.prescale;
  if (job.postscale != 1) out << ", postscale " << job.postscale;
  if (job.op == ReduceOp::kAverage && reduces(job.kind)) out << ", divisor " << job.divisor;
  if (job.kind == Kind::kBroadcast || job.kind == Kind::kReduce || job.kind == Kind::kGather ||
      job.kind == Kind::kScatter) {
    out << ", root " << job.root;
  }
  out << (job.in_place ? ", in place" : "") << ", buffers off by " << list(job.misplace);
  return out.str();
}

std::string describe(const Round& round) {
  std::ostringstream out;
  out << "seed " << round.seed << ": " << round.size << " ranks over " << name_of(round.wire) << ", segments of "
      << round.segment_bytes << " bytes\n";
  for (const Team& team : round.teams) {
    out << "  ranks " << list(team.ranks) << " on hosts " << list(team.hosts) << ", channel " << team.channel << "\n";
    for (const Job& job : team.jobs) out << "    " << describe(job) << "\n";
  }
  return out.str();
}

Round shrink(Round round, const std::function<bool(const Round&)>& fails, int tries) {
  for (bool found = true; found && tries > 0;) {
    found = false;
    for (Round& smaller : Smaller(round).all()) {
      if (tries-- <= 0) break;
      if (!fails(smaller)) continue;
      round = std::move(smaller);
      found = true;
      break;
    }
  }
  return round;
}

}  // namespace horo::proof
