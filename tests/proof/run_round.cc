#include "tests/proof/run_round.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <thread>

#include "horo/base/error.h"
#include "horo/base/mutex.h"
#include "horo/base/say.h"
#include "ring/codec/codec_table.h"
#include "ring/group/coded_all_reduce.h"
#include "ring/reduce/custom_op.h"
#include "ring/schedule/schedule_parts.h"
#include "tests/proof/schedule_file.h"
#include "tests/proof/watchdog.h"

namespace horo::proof {
namespace {

using Kind = CollectiveKind;

constexpr std::chrono::seconds kDeadline{60};   // of a collective
constexpr std::chrono::seconds kWatchdog{120};  // of a round
constexpr std::size_t kFence = 64;              // bytes on either side of a buffer that must not change
constexpr auto kUntouched = static_cast<std::byte>(0xa5);

// A buffer at a misalignment of `misplace` bytes, between fences.
class Fenced {
 public:
  Fenced(std::size_t bytes, std::size_t misplace)
      : begin_(kFence + misplace), bytes_(bytes), memory_(begin_ + bytes + kFence, kUntouched) {}
  std::byte* data() { return memory_.data() + begin_; }
  std::span<std::byte> span() { return {data(), bytes_}; }
  Buffer buffer() { return {data(), bytes_}; }
  bool are_fences_intact() const {
    const auto is_untouched = [](std::byte byte) { return byte == kUntouched; };
    const auto at = [this](std::size_t i) { return memory_.begin() + static_cast<std::ptrdiff_t>(i); };
    return std::all_of(memory_.begin(), at(begin_), is_untouched) &&
           std::all_of(at(begin_ + bytes_), memory_.end(), is_untouched);
  }

 private:
  std::size_t begin_;
  std::size_t bytes_;
  Bytes memory_;
};

std::size_t begin_of(const Job& job, std::size_t member) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < member; ++i) begin += job.counts[i];
  return begin * size_of(job.dtype);
}

// The buffers of one member for one job.
class MemberBuffers {
 public:
  MemberBuffers(const Job& job, const Oracle& oracle, std::size_t member)
      : job_(job),
        member_(member),
        in_bytes_(oracle.input(member).size()),
        out_bytes_(oracle.output_bytes(member)),
        is_in_place_(job.in_place && may_be_in_place()),
        in_(is_in_place_ ? std::max(in_bytes_, out_bytes_) : in_bytes_, job.misplace[member]),
        out_(is_in_place_ ? 0 : out_bytes_, job.misplace[member] / 2) {
    // An all_gather or gather in place has its input at its place in the output.
    gathers_in_place_ = is_in_place_ && (job.kind == Kind::kAllGather || job.kind == Kind::kGather);
    custom_ = {"mix", job.whole, [whole = job.whole](auto* accumulator, auto* value, auto count, DType dtype) {
                 return mix(accumulator, value, count, size_of(dtype), whole);
               }};
    const Bytes& input = oracle.input(member);
    if (!input.empty()) std::memcpy(in_data(), input.data(), input.size());
  }

  Collective collective(std::uint64_t plan, std::uint32_t channel) {
    Collective c;
    c.kind = job_.kind;
    c.op = job_.op;
    c.dtype = job_.dtype;
    c.order = job_.order;
    c.counts = job_.counts;
    c.root = job_.root;
    c.contributors = job_.contributors;
    c.prescale = job_.prescale;
    c.postscale = job_.postscale;
    c.divisor = job_.divisor;
    c.channel = channel;
    c.plan = plan;
    c.deadline = Clock::now() + kDeadline;
    c.what = describe(job_);
    if (job_.op == ReduceOp::kCustom) c.custom = &custom_;
    if (in_bytes_ > 0) c.in = {in_data(), in_bytes_};
    if (out_bytes_ > 0) c.out = {out(), out_bytes_};
    return c;
  }

  std::span<std::byte> output() { return {out(), out_bytes_}; }

  std::string judge(const Oracle& oracle) {
    if (!in_.are_fences_intact() || !out_.are_fences_intact()) return "bytes outside of the buffers were written";
    const Bytes& input = oracle.input(member_);
    if (!is_in_place_ && !std::equal(input.begin(), input.end(), in_.data())) return "the input was written";
    if (oracle.writes_output()) return oracle.judge(member_, output());
    const auto got = output();
    const bool stands = is_in_place_ || std::all_of(got.begin(), got.end(), [](auto b) { return b == kUntouched; });
    return stands ? "" : "the output was written although no member contributed";
  }

 private:
  bool may_be_in_place() const { return in_bytes_ > 0 && out_bytes_ > 0; }
  std::byte* in_data() { return in_.data() + (gathers_in_place_ ? begin_of(job_, member_) : 0); }
  std::byte* out() { return is_in_place_ ? in_.data() : out_.data(); }

  const Job& job_;
  const std::size_t member_;
  const std::size_t in_bytes_;
  const std::size_t out_bytes_;
  const bool is_in_place_;
  bool gathers_in_place_ = false;
  CustomOp custom_;
  Fenced in_;
  Fenced out_;
};

// The round, and how far each member is.
std::string report(const Round& round, const std::deque<std::atomic<int>>& states) {
  std::string text = describe(round);
  std::size_t at = 0;
  for (const Team& team : round.teams) {
    for (const int rank : team.ranks) {
      text += say("  rank ", rank, " in channel ", team.channel, " began ", states[at++].load(), " of ",
                  team.jobs.size(), " jobs\n");
    }
  }
  return text;
}

// What the members of a team share in a round.
struct TeamRun {
  TeamRun(const Team& team, World& world) : team(team) {
    for (const Job& job : team.jobs) {
      oracles.emplace_back(job, team.ranks.size());
      plans.push_back(world.next_plans());
      arrived.emplace_back(0);
      files.push_back(job.from_file ? file_for(job) : nullptr);
    }
    for (std::size_t member = 0; member < team.ranks.size(); ++member) {
      auto& row = buffers.emplace_back();
      for (std::size_t i = 0; i < team.jobs.size(); ++i) row.emplace_back(team.jobs[i], oracles[i], member);
    }
    errors.resize(team.ranks.size());
  }

  std::unique_ptr<ScheduleFile> file_for(const Job& job) const {
    Shape shape;
    shape.kind = job.kind;
    shape.size = static_cast<int>(team.ranks.size());
    shape.root = job.root;
    for (const NamedMaker& maker : all_schedule_makers()) {
      if (maker.kind == job.kind && maker.name == job.algorithm) {
        return std::make_unique<ScheduleFile>(shape, maker.make);
      }
    }
    return nullptr;
  }

  // The value of HORO_ALGORITHMS for the job.
  std::string algorithms(std::size_t job) const {
    const Job& of = team.jobs[job];
    if (of.algorithm.empty()) return "";
    return std::string(name_of(of.kind)) + "=" + (files[job] ? "@" + files[job]->path() : of.algorithm);
  }

  const Team& team;
  std::deque<Oracle> oracles;                        // by job
  std::vector<std::uint64_t> plans;                  // by job
  std::deque<std::atomic<int>> arrived;              // by job: members that have begun it
  std::deque<std::deque<MemberBuffers>> buffers;     // by member and job
  std::vector<std::unique_ptr<ScheduleFile>> files;  // by job; null: the job uses no file
  std::vector<std::string> errors;                   // by member: its exception
};

// Runs the jobs of one member one after the other. Groups are reused between jobs, as in a session.
class MemberRun {
 public:
  MemberRun(World& world, const Round& round, TeamRun& run, std::size_t member)
      : round_(round),
        team_run_(run),
        member_(member),
        links_(world.links(run.team.ranks[member])),
        transport_(*links_.transport) {}

  void run(std::atomic<int>& state) {
    try {
      for (std::size_t job = 0; job < team_run_.team.jobs.size(); ++job) {
        ++state;
        run_job(job);
      }
    } catch (const PeerLost& lost) {
      team_run_.errors[member_] = lost.what();
      transport_.abort(lost.origin(), lost.what());
    } catch (const std::exception& error) {
      team_run_.errors[member_] = error.what();
      transport_.abort(transport_.rank(), error.what());
    }
  }

 private:
  void run_job(std::size_t at) {
    const Job& job = team_run_.team.jobs[at];
    const auto members = static_cast<int>(team_run_.team.ranks.size());
    ++team_run_.arrived[at];
    const Collective collective =
        team_run_.buffers[member_][at].collective(team_run_.plans[at], team_run_.team.channel);
    if (job.codec.empty()) {
      group_for(at).run(collective);
    } else {
      run_coded(at, collective);
    }
    if (job.kind == Kind::kBarrier && team_run_.arrived[at] != members) {
      team_run_.errors[member_] += say("job ", at, ": left the barrier before all members arrived");
    }
  }

  void run_coded(std::size_t at, const Collective& collective) {
    const Job& job = team_run_.team.jobs[at];
    CodedTensor tensor{collective.in.data, collective.out.data, job.counts[0], job.values, nullptr};
    horo::run_coded(group_for(at), collective, codecs_.get(job.codec), {&tensor, 1}, coded_);
  }

  Group& group_for(std::size_t job) {
    Config config;
    config.segment_bytes = round_.segment_bytes;
    config.transport = round_.wire == test::Wire::kShm ? "shm" : "tcp";
    config.algorithms = team_run_.algorithms(job);
    auto& group = groups_[config.algorithms];
    if (!group) {
      const Members members{team_run_.team.ranks, team_run_.team.channel, team_run_.team.hosts};
      group = make_transport_group(links_, members, config, counters_);
    }
    return *group;
  }

  const Round& round_;
  TeamRun& team_run_;
  const std::size_t member_;
  const Links& links_;
  Transport& transport_;
  Counters counters_;
  CodecTable codecs_;
  CodedScratch coded_;
  std::map<std::string, std::unique_ptr<Group>> groups_;  // by the value of HORO_ALGORITHMS
};

void run_members(World& world, const Round& round, std::deque<TeamRun>& teams) {
  std::deque<MemberRun> runs;
  std::deque<std::atomic<int>> states;
  for (TeamRun& run : teams) {
    for (std::size_t member = 0; member < run.team.ranks.size(); ++member) {
      runs.emplace_back(world, round, run, member);
      states.emplace_back(0);
    }
  }
  const Watchdog watchdog(kWatchdog, [&] { return report(round, states); });
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < runs.size(); ++i) threads.emplace_back([&, i] { runs[i].run(states[i]); });
}

void judge(TeamRun& run, const Tamper& tamper, std::vector<std::string>& wrong) {
  for (std::size_t member = 0; member < run.team.ranks.size(); ++member) {
    const std::string place = say("rank ", run.team.ranks[member], " in channel ", run.team.channel);
    if (!run.errors[member].empty()) {
      wrong.push_back(place + ": " + run.errors[member]);
      continue;
    }
    for (std::size_t at = 0; at < run.team.jobs.size(); ++at) {
      MemberBuffers& buffers = run.buffers[member][at];
      if (tamper) tamper(run.team.jobs[at], member, buffers.output());
      const std::string finding = buffers.judge(run.oracles[at]);
      if (!finding.empty()) wrong.push_back(say(place, ", job ", at, ": ", finding));
    }
  }
}

}  // namespace

std::vector<std::string> run_round(World& world, const Round& round, const Tamper& tamper) {
  std::deque<TeamRun> teams;
  for (const Team& team : round.teams) teams.emplace_back(team, world);
  run_members(world, round, teams);
  std::vector<std::string> wrong;
  for (TeamRun& run : teams) judge(run, tamper, wrong);
  return wrong;
}

std::vector<std::string> run_round_alone(const Round& round, const Tamper& tamper) {
  World world(round.size, round.wire);
  return run_round(world, round, tamper);
}

}  // namespace horo::proof
