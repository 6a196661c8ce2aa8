#include "tests/elastic/scenario.h"

#include <algorithm>
#include <array>

namespace horo::sim {
namespace {

using namespace std::chrono_literals;

template <std::size_t Count>
Duration pick(SplitMix& random, const std::array<Duration, Count>& values) {
  return values[random.below(Count)];
}

RoundPlan draw_round(SplitMix& random, int members) {
  RoundPlan round;
  round.has_commit = random.below(3) != 0;
  round.parts = round.has_commit ? static_cast<std::uint32_t>(random.between(1, 3)) : 1;
  round.is_broadcast = random.one_in(3);
  round.root = static_cast<std::uint32_t>(random.below(8));
  if (random.one_in(8)) round.absent = only(static_cast<MemberId>(random.below(static_cast<std::uint64_t>(members))));
  return round;
}

LanePlan draw_lane(SplitMix& random, int members, bool has_all) {
  LanePlan lane;
  const MemberSet all = only(static_cast<MemberId>(members)) - 1;
  lane.set = has_all ? all : static_cast<MemberSet>(random.next()) & all;
  if (lane.set == 0) lane.set = all;
  lane.shrinks = has_all || random.one_in(2);
  lane.streams.resize(random.between(1, 2));
  for (auto& stream : lane.streams) {
    const std::uint64_t rounds = random.between(1, 4);
    for (std::uint64_t i = 0; i < rounds; ++i) stream.push_back(draw_round(random, members));
  }
  return lane;
}

FaultPlan draw_fault(SplitMix& random, int members) {
  constexpr std::array kKinds = {FaultKind::kCrash,       FaultKind::kCrash,      FaultKind::kCrash,
                                 FaultKind::kStop,        FaultKind::kStop,       FaultKind::kLink,
                                 FaultKind::kLink,        FaultKind::kHang,       FaultKind::kLeave,
                                 FaultKind::kFailedLeave, FaultKind::kPauseGuard, FaultKind::kPauseJob};
  const auto count = static_cast<std::uint64_t>(members);
  FaultPlan fault;
  fault.kind = kKinds[random.below(kKinds.size())];
  fault.member = static_cast<MemberId>(random.below(count));
  fault.other = static_cast<MemberId>((fault.member + 1 + random.below(std::max<std::uint64_t>(count - 1, 1))) % count);
  const bool is_short = fault.kind == FaultKind::kStop && random.one_in(2);
  fault.lasts = is_short ? random.up_to(pick<3>(random, {5ms, 200ms, 9s})) : 11s + random.up_to(10s);
  const bool is_pause = fault.kind == FaultKind::kPauseGuard || fault.kind == FaultKind::kPauseJob;
  if (is_pause) fault.lasts = random.up_to(pick<3>(random, {5s, 20s, 120s}));
  fault.is_lasting = !random.one_in(3);
  if (random.one_in(2)) fault.moment = static_cast<Moment>(random.below(kMoments));
  fault.count = static_cast<int>(random.between(1, 6));
  fault.at = random.up_to(pick<4>(random, {2ms, 20ms, 100ms, 1s}));
  return fault;
}

// Most members fail one after the other.
void draw_failures(SplitMix& random, Scenario& scenario) {
  FaultPlan failure = draw_fault(random, scenario.config.members);
  failure.kind = FaultKind::kFailedLeave;
  failure.moment.reset();
  failure.at = random.up_to(pick<2>(random, {5ms, 50ms}));
  for (MemberId id = 0; id < static_cast<MemberId>(scenario.config.members); ++id) {
    if (random.one_in(8)) continue;
    failure.member = id;
    scenario.faults.push_back(failure);
    failure.at += random.up_to(pick<3>(random, {1ms, 50ms, 200ms}));
  }
}

// Up to three faults, and three crashes within 50 ms, or failures of most members.
void draw_faults(SplitMix& random, Scenario& scenario) {
  const int members = scenario.config.members;
  if (random.one_in(6)) {
    FaultPlan crash = draw_fault(random, members);
    crash.kind = FaultKind::kCrash;
    crash.moment.reset();
    const auto first = crash.member;
    for (MemberId i = 0; i < 3; ++i) {
      crash.member = (first + i) % static_cast<MemberId>(members);
      scenario.faults.push_back(crash);
      crash.at += random.up_to(25ms);
    }
  }
  if (random.one_in(6)) draw_failures(random, scenario);
  const std::uint64_t more = random.below(4);
  for (std::uint64_t i = 0; i < more; ++i) scenario.faults.push_back(draw_fault(random, members));
}

}  // namespace

std::uint64_t SplitMix::next() {
  state_ += 0x9e3779b97f4a7c15U;
  std::uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31);
}

Duration SplitMix::up_to(Duration most) {
  return Duration(static_cast<Duration::rep>(1 + below(static_cast<std::uint64_t>(most.count()))));
}

std::vector<MemberId> list_of(MemberSet set) {
  std::vector<MemberId> members;
  for (MemberId id = 0; set >> id != 0; ++id) {
    if (has(set, id)) members.push_back(id);
  }
  return members;
}

Scenario draw_scenario(std::uint64_t seed) {
  SplitMix random(seed);
  Scenario scenario;
  const int members = static_cast<int>(random.between(2, 5));
  scenario.config.members = members;
  scenario.config.min_members = random.one_in(2) ? 1 : static_cast<int>(random.between(1, 3));
  scenario.config.min_members = std::min(scenario.config.min_members, members);
  const std::uint64_t lanes = random.between(1, 3);
  for (std::uint64_t i = 0; i < lanes; ++i) scenario.lanes.push_back(draw_lane(random, members, i == 0));
  scenario.depth = static_cast<std::uint32_t>(random.below(3));
  scenario.times.guard = pick<3>(random, {50us, 1ms, 20ms});
  scenario.times.link = pick<3>(random, {20us, 500us, 10ms});
  scenario.times.data = pick<3>(random, {50us, 1ms, 20ms});
  scenario.times.submit = pick<2>(random, {100us, 3ms});
  scenario.times.freeze = pick<2>(random, {100us, 5ms});
  scenario.times.connect = pick<2>(random, {1ms, 50ms});
  scenario.slowness.assign(static_cast<std::size_t>(members), 1);
  for (int& slowness : scenario.slowness) slowness = random.one_in(8) ? 20 : 1;
  scenario.fails_alike = random.one_in(2);
  scenario.repeats_frozen = random.one_in(2);
  scenario.fails_to_connect = random.one_in(2);
  scenario.reads_late = random.one_in(3);
  scenario.omits_idle_lanes = random.one_in(2);
  scenario.odd_member = static_cast<MemberId>(random.below(scenario.slowness.size()));
  draw_faults(random, scenario);
  for (MemberId id = 0; id < static_cast<MemberId>(members); ++id) {
    if (random.one_in(8)) scenario.failing_exits |= only(id);
  }
  scenario.exit_takes = pick<2>(random, {1ms, 3s});
  return scenario;
}

// A longer program, so that a process that joins takes part in it. Rounds in which a member has no part may have been
// delivered by others before: those that join have none in them either.
Scenario draw_growing_scenario(std::uint64_t seed) {
  Scenario scenario = draw_scenario(seed);
  SplitMix random(seed ^ 0x6a6f696e);
  if (random.one_in(3)) return scenario;
  const int members = scenario.config.members;
  JoinPlan& joins = scenario.joins;
  joins.most = static_cast<std::uint32_t>(random.between(1, 4));
  scenario.config.max_members = members + static_cast<int>(random.below(3));
  for (std::uint32_t i = 0; i < joins.most; ++i) {
    const auto id = static_cast<MemberId>(scenario.slowness.size());
    scenario.slowness.push_back(random.one_in(8) ? 20 : 1);
    scenario.lanes.front().set |= only(id);
    if (random.one_in(8)) joins.differing |= only(id);
    if (!random.one_in(2)) continue;
    FaultPlan fault = draw_fault(random, members);
    std::swap(fault.member, fault.other);
    fault.member = id;
    if (fault.moment) fault.moment = static_cast<Moment>(random.below(kMomentsOfJoiners));
    fault.count = static_cast<int>(random.between(1, 3));
    scenario.faults.push_back(fault);
  }
  const MemberSet joiners = scenario.lanes.front().set & ~(only(static_cast<MemberId>(members)) - 1);
  for (auto& stream : scenario.lanes.front().streams) {
    const std::uint64_t rounds = random.between(6, 24);
    while (stream.size() < rounds) stream.push_back(draw_round(random, members));
    for (RoundPlan& round : stream) round.absent |= round.absent != 0 ? joiners : 0;
  }
  for (std::uint64_t starts = random.below(3); starts > 0; --starts)
    joins.starts.push_back(random.up_to(pick<3>(random, {300us, 3ms, 50ms})));
  joins.replaced = pick<2>(random, {200us, 20ms});
  joins.ready = pick<3>(random, {200us, 5ms, 200ms});
  joins.can_grow = pick<2>(random, {100us, 5ms});
  joins.transferred = pick<3>(random, {200us, 20ms, 2s});
  if (random.one_in(10)) joins.never_can = only(static_cast<MemberId>(random.below(members)));
  if (random.one_in(3)) {  // a death at a border
    FaultPlan fault = draw_fault(random, members);
    fault.moment = random.one_in(2) ? Moment::kSendsFrozen : Moment::kFreezes;
    fault.count = 1;
    scenario.faults.push_back(fault);
  }
  return scenario;
}

}  // namespace horo::sim
