// Runs many rounds and shrinks those that fail.

#include "horo/base/say.h"
#include "ring/schedule/schedule_parts.h"
#include "tests/proof/run_round.h"

namespace horo::proof {
namespace {

using test::Wire;

constexpr int kShrinkTries = 300;

// Keeps worlds, because connecting takes longer than a round.
class Worlds {
 public:
  World& of(const Round& round) {
    auto& world = worlds_[{round.size, round.wire}];
    if (!world) world = std::make_unique<World>(round.size, round.wire);
    return *world;
  }
  void forget(const Round& round) { worlds_.erase({round.size, round.wire}); }

 private:
  std::map<std::pair<int, Wire>, std::unique_ptr<World>> worlds_;
};

void count(const Round& round, Tally& tally) {
  ++tally.rounds;
  tally.jobs += round.jobs();
  for (const Team& team : round.teams) {
    tally.outputs += team.jobs.size() * team.ranks.size();
    for (const Job& job : team.jobs) {
      ++tally.ran[say(name_of(job.kind), " by ", job.algorithm.empty() ? "rule" : job.algorithm)];
      ++tally.ran[say("type ", name_of(job.dtype))];
      ++tally.ran[std::string("over ") + name_of(round.wire)];
      ++tally.ran[say(round.teams.size(), " sets at work")];
      if (job.from_file) ++tally.ran["schedules from a file"];
      if (job.in_place) ++tally.ran["in place"];
      if (!job.codec.empty()) ++tally.ran[say("codec ", job.codec)];
      if (!reduces(job.kind)) continue;
      ++tally.ran[say("operation ", name_of(job.op))];
      ++tally.ran[say("order ", name_of(job.order))];
    }
  }
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "  " + line + "\n";
  return text;
}

}  // namespace

Tally run_rounds(std::uint64_t seed, std::uint64_t jobs, const Tamper& tamper) {
  constexpr std::size_t kEnough = 3;
  Tally tally;
  Worlds worlds;
  for (std::uint64_t at = seed; tally.jobs < jobs && tally.found.size() < kEnough; ++at) {
    const Round round = draw_round(at);
    const auto wrong = run_round(worlds.of(round), round, tamper);
    count(round, tally);
    if (wrong.empty()) continue;
    worlds.forget(round);
    const auto fails = [&](const Round& smaller) { return !run_round_alone(smaller, tamper).empty(); };
    const Round smallest = shrink(round, fails, kShrinkTries);
    const auto still = run_round_alone(smallest, tamper);
    if (still.empty()) {
      tally.flaky.push_back(say("seed ", at, ":\n", join(wrong)));
    } else {
      tally.found.push_back({smallest, still});
    }
  }
  return tally;
}

std::string describe(const Tally& tally) {
  std::string text;
  for (const FailedRound& found : tally.found) text += describe(found.smallest) + join(found.wrong);
  for (const std::string& once : tally.flaky) text += "failed once but not when repeated, " + once;
  return text;
}

}  // namespace horo::proof
