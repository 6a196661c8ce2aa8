// Lanes as in horo/lane/: the same order on all members, and the steps data, complete, barrier, deliver.
#include <algorithm>

#include "tests/elastic/simulation.h"

namespace horo::sim {

// The callers' program: the next collective of the stream, unless rounds before it are still to be delivered.
void Simulation::submit(const SimEvent& event) {
  MemberState& member = at(event.member);
  if (member.phase != MemberPhase::kRunning || member.epoch != event.epoch) return;
  const auto index = static_cast<std::uint32_t>(event.number);
  skip_absent(event.member, event.lane, index);
  StreamState& stream = member.lanes[event.lane].streams[index];
  if (is_held(member, event.lane, index)) return come_to_place(event.member);
  if (stream.round >= scenario_.lanes[event.lane].streams[index].size()) return;
  if (stream.round > stream.delivered + scenario_.depth) {
    stream.is_waiting = true;
    return;
  }
  if (!reach(event.member, Moment::kSubmits)) return;
  report(event.member, event.lane, index);
  watch_left(event.member);
  later(event, some(event.member, scenario_.times.submit));
}

void Simulation::skip_absent(MemberId id, std::uint32_t lane, std::uint32_t index) {
  const auto& rounds = scenario_.lanes[lane].streams[index];
  StreamState& stream = at(id).lanes[lane].streams[index];
  while (stream.delivered < rounds.size() && has(rounds[stream.delivered].absent, id)) ++stream.delivered;
  while (stream.round < rounds.size() && stream.part == 0 && has(rounds[stream.round].absent, id)) ++stream.round;
  stream.round = std::max(stream.round, stream.delivered);
}

void Simulation::report(MemberId id, std::uint32_t lane, std::uint32_t index) {
  MemberState& member = at(id);
  StreamState& stream = member.lanes[lane].streams[index];
  lane_of(member.epoch, lane).submitted[{index, stream.round, stream.part}] |= only(id);
  release(member.epoch, lane, index);
  if (++stream.part < scenario_.lanes[lane].streams[index][stream.round].size()) return;
  stream.part = 0;
  ++stream.round;
}

// The coordinator releases a collective when all members that take part have submitted it; a stream keeps its order.
void Simulation::release(std::uint32_t epoch, std::uint32_t lane, std::uint32_t index) {
  const MemberSet members = record(epoch).members & scenario_.lanes[lane].set;
  auto& [submitted, released, observed] = lane_of(epoch, lane);
  for (auto next = submitted.lower_bound({index, 0, 0}); next != submitted.end(); next = submitted.erase(next)) {
    const auto [stream, round, part] = next->first;
    if (stream != index) return;
    const MemberSet participants = members & ~scenario_.lanes[lane].streams[index][round].absent;
    if ((next->second & participants) != participants) return;
    released.push_back({index, round, part, participants, 0});
    const MemberId leader = list_of(record(epoch).members).front();
    const Duration reported = longest_cut(participants & ~only(leader), leader);
    for (const MemberId one : list_of(members)) {
      const Duration wait = reported + cut_left(leader, one);
      later({EventKind::kRelease, one, epoch, lane, released.size()}, wait + some(one, scenario_.times.link));
    }
  }
}

bool Simulation::is_at_work(const MemberState& member, std::uint32_t lane) const {
  const bool has_epoch = member.phase == MemberPhase::kRunning || member.phase == MemberPhase::kFreezing ||
                         member.phase == MemberPhase::kFrozen;
  return has_epoch && !member.lanes[lane].is_stopped;
}

void Simulation::advance(MemberId id, std::uint32_t index) {
  MemberState& member = at(id);
  LaneState& lane = member.lanes[index];
  while (is_at_work(member, index) && lane.step == LaneStep::kIdle && lane.ended < lane.known) {
    if (has(lane_of(member.epoch, index).released[lane.ended].participants, id)) return begin_data(id, index);
    ++lane.ended;
  }
}

// A reduction ends when all have begun, and a broadcast when its root has. Data of a link that has failed never comes.
void Simulation::begin_data(MemberId id, std::uint32_t index) {
  MemberState& member = at(id);
  LaneState& lane = member.lanes[index];
  lane.step = LaneStep::kData;
  const std::uint64_t number = lane.ended + 1;
  const EpochRecord& shared = record(member.epoch);
  ReleasedCollective& one = lane_of(member.epoch, index).released[lane.ended];
  one.begun |= only(id);
  const std::vector<MemberId> participants = list_of(one.participants);
  const bool is_broadcast = plan_of(index, one).is_broadcast;
  const MemberId root = participants[plan_of(index, one).root % participants.size()];
  const auto is_running = [&](MemberId peer) {
    const LaneState& peers = at(peer).lanes[index];
    return at(peer).epoch == member.epoch && is_at_work(at(peer), index) && peers.step == LaneStep::kData &&
           peers.ended == lane.ended && !shared.is_broken(id, peer);
  };
  const auto end_on = [&](MemberId peer) {
    const Duration wait = longest_cut((is_broadcast ? only(root) : one.participants) & ~only(peer), peer);
    later({EventKind::kDataDone, peer, member.epoch, index, number}, wait + some(peer, scenario_.times.data));
  };
  if (!is_broadcast) {
    if (std::all_of(participants.begin(), participants.end(), is_running)) {
      for (const MemberId peer : participants) end_on(peer);
    }
    return;
  }
  if (id == root || (has(one.begun, root) && !shared.is_broken(id, root))) end_on(id);
  for (const MemberId peer : participants) {
    if (id == root && peer != root && is_running(peer)) end_on(peer);
  }
}

Delivery Simulation::delivery_of(MemberId id, std::uint32_t lane, std::uint64_t number) {
  const MemberState& member = at(id);
  const ReleasedCollective& one = lane_of(member.epoch, lane).released[number - 1];
  Delivery delivery{lane, one.stream, one.round, one.part, member.epoch, number, 0};
  int rank = 0;
  for (const MemberId contributor : member.ranks) {
    if (has(one.participants, contributor)) delivery.contributors |= std::uint64_t{contributor + 1} << (4 * rank++);
  }
  return delivery;
}

void Simulation::end_data(const SimEvent& event) {
  MemberState& member = at(event.member);
  LaneState& lane = member.lanes[event.lane];
  if (member.epoch != event.epoch || !is_at_work(member, event.lane)) return;
  if (lane.step != LaneStep::kData || lane.ended + 1 != event.number) return;
  lane.complete = event.number;
  const Delivery delivery = delivery_of(event.member, event.lane, event.number);
  const ReleasedCollective& one = lane_of(event.epoch, event.lane).released[event.number - 1];
  StreamState& stream = lane.streams[one.stream];
  stream.held.push_back(delivery);
  if (!plan_of(event.lane, one).commits(one.part)) {
    lane.step = LaneStep::kIdle;
    ++lane.ended;
    if (reach(event.member, Moment::kCompletes)) advance(event.member, event.lane);
    return;
  }
  lane.committing = std::exchange(stream.held, {});
  lane.commit_number = event.number;
  lane.commit_participants = one.participants;
  lane.step = LaneStep::kBarrier;
  lane.is_ending = false;
  if (!reach(event.member, Moment::kCompletes)) return;
  for (const MemberId peer : list_of(one.participants & ~only(event.member))) {
    later({EventKind::kObserved, peer, event.epoch, event.lane, event.number, event.member},
          cut_left(event.member, peer) + some(event.member, scenario_.times.link));
  }
  try_barrier(event.member, event.lane);
}

void Simulation::observe(const SimEvent& event) {
  if (record(event.epoch).is_broken(event.member, event.from)) return;
  std::uint64_t& observed = lane_of(event.epoch, event.lane).observed[event.member][event.from];
  observed = std::max(observed, event.number);
  if (at(event.member).epoch == event.epoch) try_barrier(event.member, event.lane);
}

// The barrier ends on a member when it knows that the collective is complete on all that take part.
void Simulation::try_barrier(MemberId id, std::uint32_t index) {
  MemberState& member = at(id);
  LaneState& lane = member.lanes[index];
  if (!is_at_work(member, index) || lane.step != LaneStep::kBarrier || lane.is_ending) return;
  const auto& observed = lane_of(member.epoch, index).observed[id];
  const bool is_ignored = planted_ == Planted::kDeliversBeforeTheBarrier;
  for (const MemberId peer : list_of(lane.commit_participants & ~only(id))) {
    if (observed[peer] < lane.commit_number && !is_ignored) return;
  }
  lane.is_ending = true;
  later({EventKind::kBarrierEnds, id, member.epoch, index, lane.commit_number}, some(id, scenario_.times.link / 4));
}

void Simulation::end_barrier(const SimEvent& event) {
  MemberState& member = at(event.member);
  LaneState& lane = member.lanes[event.lane];
  if (member.epoch != event.epoch || !is_at_work(member, event.lane)) return;
  if (lane.step != LaneStep::kBarrier || lane.commit_number != event.number) return;
  const std::vector<MemberId> participants = list_of(lane.commit_participants);
  const bool is_late = std::any_of(participants.begin(), participants.end(), [&](MemberId id) {
    return at(id).phase != MemberPhase::kRunning || at(id).epoch != event.epoch;
  });
  if (is_late) ++report_.late_passes;
  if (!reach(event.member, Moment::kPasses)) return;
  lane.step = LaneStep::kIdle;
  ++lane.ended;
  deliver(event.member, event.lane, std::exchange(lane.committing, {}));
  if (member.phase != MemberPhase::kEnded) advance(event.member, event.lane);
}

void Simulation::deliver(MemberId id, std::uint32_t index, std::vector<Delivery> commit) {
  checker_.deliver(id, commit);
  report_.deliveries += commit.size();
  MemberState& member = at(id);
  const Delivery& first = commit.front();
  StreamState& stream = member.lanes[index].streams[first.stream];
  stream.delivered = first.round + 1;
  skip_absent(id, index, first.stream);
  if (!reach(id, Moment::kDelivers)) return;
  if (std::exchange(stream.is_waiting, false)) {
    later({EventKind::kSubmit, id, member.epoch, index, first.stream}, some(id, scenario_.times.submit));
  }
  if (member.growth != GrowthStep::kNone) return come_to_place(id);
  if (is_done(member, id)) finish(id);
}

}  // namespace horo::sim
