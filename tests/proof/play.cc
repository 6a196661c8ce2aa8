#include "tests/proof/play.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
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

namespace horo::proof {
namespace {

using Kind = CollectiveKind;

constexpr std::chrono::seconds kDeadline{60};   // of a collective
constexpr std::chrono::seconds kWatchdog{120};  // of a round
constexpr std::size_t kFence = 64;              // bytes on either side of a buffer that nobody may touch
constexpr auto kUntouched = static_cast<std::byte>(0xa5);

// Memory for `bytes` that misses its alignment by `misplace`, between fences.
class Fenced {
 public:
  Fenced(std::size_t bytes, std::size_t misplace)
      : begin_(kFence + misplace), bytes_(bytes), memory_(begin_ + bytes + kFence, kUntouched) {}
  std::byte* data() { return memory_.data() + begin_; }
  std::span<std::byte> span() { return {data(), bytes_}; }
  Buffer buffer() { return {data(), bytes_}; }
  bool fences_stand() const {
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

// One job's buffers: of a member.
class Seat {
 public:
  Seat(const Job& job, const Oracle& oracle, std::size_t member)
      : job_(job),
        member_(member),
        in_bytes_(oracle.input(member).size()),
        out_bytes_(oracle.output_bytes(member)),
        is_in_place_(job.in_place && may_be_in_place()),
        in_(is_in_place_ ? std::max(in_bytes_, out_bytes_) : in_bytes_, job.misplace[member]),
        out_(is_in_place_ ? 0 : out_bytes_, job.misplace[member] / 2) {
    // An all_gather or gather in place brings its part where it belongs.
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
    if (!in_.fences_stand() || !out_.fences_stand()) return "bytes outside of the buffers were written";
    const Bytes& input = oracle.input(member_);
    if (!is_in_place_ && !std::equal(input.begin(), input.end(), in_.data())) return "the input was written";
    if (oracle.writes_output()) return oracle.judge(member_, output());
    const auto got = output();
    const bool stands = is_in_place_ || std::all_of(got.begin(), got.end(), [](auto b) { return b == kUntouched; });
    return stands ? "" : "the output was written, and nobody contributed";
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

// Ends the process if the round lives too long.
class Watchdog {
 public:
  Watchdog(const Round& round, const std::deque<std::atomic<int>>& states)
      : round_(round), states_(states), thread_([this] { watch(); }) {}
  ~Watchdog() {
    MutexLock lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }

 private:
  void watch() {
    const TimePoint until = Clock::now() + kWatchdog;
    MutexLock lock(mutex_);
    while (!is_over_ && Clock::now() < until) changed_.wait_until(mutex_, until);
    if (is_over_) return;
    std::string text = "proof: a round hangs:\n" + describe(round_);
    std::size_t at = 0;
    for (const Team& team : round_.teams) {
      for (const int rank : team.ranks) {
        text += say("  rank ", rank, " in channel ", team.channel, " began ", states_[at++].load(), " of ",
                    team.jobs.size(), " jobs\n");
      }
    }
    std::fputs(text.c_str(), stderr);
    std::abort();
  }

  const Round& round_;
  const std::deque<std::atomic<int>>& states_;
  Mutex mutex_;
  CondVar changed_;
  bool is_over_ GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

// A team at play: what its members share.
struct Table {
  Table(const Team& team, World& world) : team(team) {
    for (const Job& job : team.jobs) {
      oracles.emplace_back(job, team.ranks.size());
      plans.push_back(world.next_plans());
      arrived.emplace_back(0);
      files.push_back(job.from_file ? file_for(job) : nullptr);
    }
    for (std::size_t member = 0; member < team.ranks.size(); ++member) {
      auto& row = seats.emplace_back();
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

  // What this job overrides for.
  std::string wish(std::size_t job) const {
    const Job& of = team.jobs[job];
    if (of.algorithm.empty()) return "";
    return std::string(name_of(of.kind)) + "=" + (files[job] ? "@" + files[job]->path() : of.algorithm);
  }

  const Team& team;
  std::deque<Oracle> oracles;                        // by job
  std::vector<std::uint64_t> plans;                  // by job
  std::deque<std::atomic<int>> arrived;              // by job: members that came to a barrier
  std::deque<std::deque<Seat>> seats;                // by member and job
  std::vector<std::unique_ptr<ScheduleFile>> files;  // by job; null: its schedules come from no file
  std::vector<std::string> errors;                   // by member: what it threw
};

// One member's jobs, one after the other; groups are kept as long as a session would.
class Player {
 public:
  Player(World& world, const Round& round, Table& table, std::size_t member)
      : round_(round),
        table_(table),
        member_(member),
        links_(world.links(table.team.ranks[member])),
        transport_(*links_.transport) {}

  void run(std::atomic<int>& state) {
    try {
      for (std::size_t job = 0; job < table_.team.jobs.size(); ++job) {
        ++state;
        run_job(job);
      }
    } catch (const PeerLost& lost) {
      table_.errors[member_] = lost.what();
      transport_.abort(lost.origin(), lost.what());
    } catch (const std::exception& error) {
      table_.errors[member_] = error.what();
      transport_.abort(transport_.rank(), error.what());
    }
  }

 private:
  void run_job(std::size_t at) {
    const Job& job = table_.team.jobs[at];
    const auto members = static_cast<int>(table_.team.ranks.size());
    ++table_.arrived[at];
    const Collective collective = table_.seats[member_][at].collective(table_.plans[at], table_.team.channel);
    if (job.codec.empty()) {
      horo::run(group_for(at), collective);
    } else {
      run_coded(at, collective);
    }
    if (job.kind == Kind::kBarrier && table_.arrived[at] != members) {
      table_.errors[member_] += say("job ", at, ": left the barrier before all had come");
    }
  }

  void run_coded(std::size_t at, const Collective& collective) {
    const Job& job = table_.team.jobs[at];
    CodedTensor tensor{collective.in.data, collective.out.data, job.counts[0], job.values, nullptr};
    horo::run_coded(group_for(at), collective, codecs_.get(job.codec), {&tensor, 1}, coded_);
  }

  Group& group_for(std::size_t job) {
    Config config;
    config.segment_bytes = round_.segment_bytes;
    config.transport = round_.wire == test::Wire::kShm ? "shm" : "tcp";
    config.algorithms = table_.wish(job);
    auto& group = groups_[config.algorithms];
    if (!group) {
      const Members members{table_.team.ranks, table_.team.channel, table_.team.hosts};
      group = make_host_group(links_, members, config, counters_);
    }
    return *group;
  }

  const Round& round_;
  Table& table_;
  const std::size_t member_;
  const Links& links_;
  Transport& transport_;
  Counters counters_;
  CodecTable codecs_;
  CodedScratch coded_;
  std::map<std::string, std::unique_ptr<Group>> groups_;  // by what is wished for
};

void run_players(World& world, const Round& round, std::deque<Table>& tables) {
  std::deque<Player> players;
  std::deque<std::atomic<int>> states;
  for (Table& table : tables) {
    for (std::size_t member = 0; member < table.team.ranks.size(); ++member) {
      players.emplace_back(world, round, table, member);
      states.emplace_back(0);
    }
  }
  const Watchdog watchdog(round, states);
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < players.size(); ++i) threads.emplace_back([&, i] { players[i].run(states[i]); });
}

void judge(Table& table, const Tamper& tamper, std::vector<std::string>& wrong) {
  for (std::size_t member = 0; member < table.team.ranks.size(); ++member) {
    const std::string who = say("rank ", table.team.ranks[member], " in channel ", table.team.channel);
    if (!table.errors[member].empty()) {
      wrong.push_back(who + ": " + table.errors[member]);
      continue;
    }
    for (std::size_t at = 0; at < table.team.jobs.size(); ++at) {
      Seat& seat = table.seats[member][at];
      if (tamper) tamper(table.team.jobs[at], member, seat.output());
      const std::string finding = seat.judge(table.oracles[at]);
      if (!finding.empty()) wrong.push_back(say(who, ", job ", at, ": ", finding));
    }
  }
}

}  // namespace

std::vector<std::string> play(World& world, const Round& round, const Tamper& tamper) {
  std::deque<Table> tables;
  for (const Team& team : round.teams) tables.emplace_back(team, world);
  run_players(world, round, tables);
  std::vector<std::string> wrong;
  for (Table& table : tables) judge(table, tamper, wrong);
  return wrong;
}

std::vector<std::string> play_alone(const Round& round, const Tamper& tamper) {
  World world(round.size, round.wire);
  return play(world, round, tamper);
}

}  // namespace horo::proof
