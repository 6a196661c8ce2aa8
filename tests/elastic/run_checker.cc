#include "tests/elastic/run_checker.h"

#include <algorithm>

#include "elastic/texts.h"

namespace horo::sim {
namespace {

constexpr std::size_t kLeastLinkFailures = 3;  // in an epoch each

std::string name_of(const Delivery& delivery) {
  return "lane " + std::to_string(delivery.lane) + " stream " + std::to_string(delivery.stream) + " round " +
         std::to_string(delivery.round) + " part " + std::to_string(delivery.part);
}

std::string place_of(std::uint32_t epoch, std::uint64_t number) {
  return "number " + std::to_string(number) + " of epoch " + std::to_string(epoch);
}

std::string contributors_text(std::uint64_t contributors) {
  std::string text;
  for (; contributors != 0; contributors >>= 4) text += " " + std::to_string((contributors & 15) - 1);
  return text;
}

MemberSet set_of(const std::vector<MemberId>& members) {
  MemberSet set = 0;
  for (const MemberId id : members) set |= only(id);
  return set;
}

}  // namespace

RunChecker::RunChecker(std::uint64_t seed, const Scenario& scenario)
    : seed_(seed), scenario_(scenario), members_(only(static_cast<MemberId>(scenario.config.members)) - 1) {
  had_epochs_ = state_ = heard_.with_state = members_;
  std::vector<std::vector<std::uint32_t>> starts;
  for (const LanePlan& lane : scenario.lanes) starts.emplace_back(lane.streams.size(), 0);
  next_.assign(scenario.slowness.size(), starts);
  last_.assign(scenario.slowness.size(), std::vector<std::pair<std::uint32_t, std::uint64_t>>(scenario.lanes.size()));
}

void RunChecker::violate(const std::string& text) {
  if (violation_.empty()) violation_ = "seed " + std::to_string(seed_) + ": " + text;
}

bool RunChecker::takes_part(MemberId member, std::uint32_t lane, const RoundPlan& round) const {
  return has(scenario_.lanes[lane].set, member) && !has(round.absent, member);
}

// ---- Deliveries.

void RunChecker::deliver(MemberId member, std::span<const Delivery> commit) {
  if (!has(state_, member)) violate("member " + std::to_string(member) + " trains without the state");
  check_round(member, commit);
  for (const Delivery& delivery : commit) {
    check_order(member, delivery);
    check_agreement(member, delivery);
  }
}

// A commit delivers one round, the next one of its stream, as a whole and with one set of contributors.
void RunChecker::check_round(MemberId member, std::span<const Delivery> commit) {
  const Delivery& first = commit.front();
  const auto& stream = scenario_.lanes[first.lane].streams[first.stream];
  std::uint32_t& next = next_[member][first.lane][first.stream];
  while (next < stream.size() && !takes_part(member, first.lane, stream[next])) ++next;
  const std::string what = "member " + std::to_string(member) + " delivers " + name_of(first);
  if (first.round != next) violate(what + ", but its next round is " + std::to_string(next));
  for (std::uint32_t part = 0; part < commit.size(); ++part) {
    const Delivery& delivery = commit[part];
    const bool is_next = delivery.stream == first.stream && delivery.round == first.round && delivery.part == part;
    if (!is_next) violate(what + ", and with it " + name_of(delivery));
    if (delivery.epoch != first.epoch || delivery.contributors != first.contributors) {
      violate(what + " of members" + contributors_text(first.contributors) + " with a part of members" +
              contributors_text(delivery.contributors));
    }
  }
  if (commit.size() != stream[first.round].size()) {
    violate(what + ": " + std::to_string(commit.size()) + " parts of " + std::to_string(stream[first.round].size()));
  }
  next = first.round + 1;
}

void RunChecker::check_order(MemberId member, const Delivery& delivery) {
  auto& last = last_[member][delivery.lane];
  const std::pair now(delivery.epoch, delivery.number);
  // The parts of a round are delivered after later collectives that commit by themselves: only the commit has an order.
  const RoundPlan& round = scenario_.lanes[delivery.lane].streams[delivery.stream][delivery.round];
  if (!round.commits(delivery.part)) return;
  if (now <= last) {
    violate("member " + std::to_string(member) + " delivers " + name_of(delivery) + " as " +
            place_of(now.first, now.second) + " after " + place_of(last.first, last.second));
  }
  last = now;
}

void RunChecker::check_agreement(MemberId member, const Delivery& delivery) {
  const std::string name = "member " + std::to_string(member) + " delivers " + name_of(delivery);
  const Key key(delivery.lane, delivery.stream, delivery.round, delivery.part);
  const auto [found, is_first] =
      agreed_.emplace(key, Agreed{delivery.epoch, delivery.number, delivery.contributors, only(member)});
  if (is_first) return;
  Agreed& agreed = found->second;
  if (has(agreed.delivered_by, member)) violate(name + " twice");
  agreed.delivered_by |= only(member);
  if (agreed.epoch != delivery.epoch || agreed.number != delivery.number) {
    violate(name + " as " + place_of(delivery.epoch, delivery.number) + ", another one as " +
            place_of(agreed.epoch, agreed.number));
  }
  if (agreed.contributors != delivery.contributors) {
    violate(name + " of members" + contributors_text(delivery.contributors) + ", another one of members" +
            contributors_text(agreed.contributors));
  }
}

void RunChecker::fail_lane(MemberId member, std::uint32_t lane) {
  std::vector<std::uint32_t> rounds;
  for (std::size_t i = 0; i < scenario_.lanes[lane].streams.size(); ++i) {
    const auto& stream = scenario_.lanes[lane].streams[i];
    std::uint32_t next = next_[member][lane][i];
    while (next > 0 && stream[next - 1].absent != 0) --next;  // the rounds that all members of the lane have
    rounds.push_back(next);
  }
  const auto [found, is_first] = failed_.emplace(lane, std::pair(member, rounds));
  if (is_first || found->second.second == rounds) return;
  violate("members " + std::to_string(found->second.first) + " and " + std::to_string(member) + " fail lane " +
          std::to_string(lane) + " after different rounds");
}

// ---- Messages.

void RunChecker::send(MemberId member, const Frozen& frozen) {
  const auto [found, is_first] = frozen_.emplace(std::pair(member, frozen.epoch), frozen.progress);
  if (frozen.at_border) at_border_.emplace(member, frozen.epoch);
  if (!is_first && found->second != frozen.progress) {
    violate("member " + std::to_string(member) + " changes its progress in epoch " + std::to_string(frozen.epoch));
  }
}

void RunChecker::count_link_failure(MemberId one, MemberId other, std::uint32_t epoch) {
  link_failures_[{std::min(one, other), std::max(one, other)}].insert(epoch);
}

void RunChecker::send(MemberId member, View view) {
  view.secret = {};
  const std::string name = "the View of epoch " + std::to_string(view.epoch);
  const bool is_new = !view_ || view_->epoch != view.epoch;
  if (!has(set_of(view.members), member)) violate(name + " is sent to " + std::to_string(member) + ", which is out");
  if (!is_new) {
    if (has(seen_view_, member)) violate(name + " is sent twice to member " + std::to_string(member));
    if (*view_ != view) violate(name + " differs between its members");
    seen_view_ |= only(member);
    return;
  }
  const std::uint32_t epoch = view_ ? view_->epoch : 0;
  if (view.epoch != epoch + 1) violate(name + " comes after epoch " + std::to_string(epoch));
  const MemberSet gone = has_repeats_ ? out_ | evicted_ : 0;
  if (view_ && (members_ & ~seen_view_ & ~gone) != 0)
    violate("the View of epoch " + std::to_string(epoch) + " is not sent to all");
  const MemberSet next = set_of(view.members);
  if (view.members != list_of(next)) violate(name + " has ranks that do not ascend");
  MemberSet joined = 0;
  for (const MemberId id : view.joined) joined |= only(id);
  check_joins(view, epoch);
  if ((next & ~members_ & ~joined) != 0) violate(name + " has a member that was out");
  if ((next & evicted_) != 0 && !has_repeats_) violate(name + " has an evicted member");
  if ((members_ & ~next & ~out_ & ~evicted_) != 0) violate(name + " lacks a member that is not out");
  const MemberSet others = heard_.ready & ~heard_.out & ~heard_.stopped & ~heard_.refused & ~had_epochs_;
  if (next == 0 || !is_enough(next | others)) violate(name + " has too few members");
  if (view.progress.size() + view.joined.size() != view.members.size())
    violate(name + " has the progress of other members");
  for (const auto& [id, progress] : view.progress) {
    const auto sent = frozen_.find({id, epoch});
    if (sent == frozen_.end() || sent->second != progress) {
      violate(name + " has a progress of member " + std::to_string(id) + " that it did not send");
    }
  }
  view_ = view;
  members_ = next;
  had_epochs_ |= next;
  seen_view_ = only(member);
}

// Once per epoch and member, the same for all, and of members that are frozen.
void RunChecker::send(MemberId member, const Settle& settle) {
  const std::string name = "the Settle of epoch " + std::to_string(settle.epoch);
  const auto [found, is_first] = settled_.emplace(settle.epoch, std::pair(settle, MemberSet{0}));
  if (settle != found->second.first) violate(name + " differs between its members");
  if (has(found->second.second, member) && !has_repeats_)
    violate(name + " is sent twice to member " + std::to_string(member));
  found->second.second |= only(member);
  if (settle.epoch != (view_ ? view_->epoch : 0) && !has_repeats_) violate(name + " is not of the present epoch");
  for (const auto& [id, progress] : settle.progress) {
    const auto sent = frozen_.find({id, settle.epoch});
    if (sent == frozen_.end() || sent->second != progress) {
      violate(name + " has a progress of member " + std::to_string(id) + " that it did not send");
    }
  }
}

bool RunChecker::is_of_link(MemberId member) const {
  const auto host_of = [&](MemberId id) { return hosts_.empty() ? 0 : hosts_.at(id); };
  std::map<std::uint32_t, std::set<std::uint32_t>> by_host;  // epochs: of failures between its host and this one
  for (const auto& [link, failures] : link_failures_) {
    const auto [low, high] = link;
    if (host_of(low) == host_of(high) && high == member && failures.size() >= kLeastLinkFailures) return true;
    if (host_of(low) < host_of(high) && host_of(high) == host_of(member))
      by_host[host_of(low)].insert(failures.begin(), failures.end());
  }
  return std::any_of(by_host.begin(), by_host.end(),
                     [](const auto& one) { return one.second.size() >= kLeastLinkFailures; });
}

// A member is evicted for its silence, or for a link that fails again and again, and then it, or its host, has the
// higher number.
void RunChecker::evict(MemberId member, std::uint32_t epoch, TimePoint now) {
  const std::string name = "member " + std::to_string(member) + " is evicted";
  if (!has(heard_.with_state, member)) {  // it hurts no other
    (has(had_epochs_, member) ? evicted_ : heard_.refused) |= only(member);
    return;
  }
  MemberSet waiting = 0;
  for (const auto& [frozen, progress] : frozen_) {
    if (frozen.second == epoch) waiting |= only(frozen.first);
  }
  if ((waiting & ~only(member) & ~evicted_) == 0) violate(name + " although no other waits");
  const bool is_by_link = is_of_link(member);
  if (!is_by_link && now < runs_ + scenario_.config.silence_limit) violate(name + " by one that did not run itself");
  evicted_ |= only(member);
  if (has(evictable_, member)) return;
  if (!is_by_link) violate("member " + std::to_string(member) + " is evicted without a cause");
}

// ---- The end.

// What any member has delivered, those that finished their program have delivered too.
void RunChecker::end() {
  for (const auto& [key, agreed] : agreed_) {
    const auto [lane, stream, round, part] = key;
    if (failed_.contains(lane)) continue;
    const RoundPlan& plan = scenario_.lanes[lane].streams[stream][round];
    for (const MemberId id : list_of(finished_ & ~agreed.delivered_by)) {
      const auto start = starts_.find(id);
      const bool is_before = lane == 0 && start != starts_.end() && round < start->second.at(stream);
      if (takes_part(id, lane, plan) && !is_before) {
        violate("member " + std::to_string(id) + " has ended without " + name_of({lane, stream, round, part}));
      }
    }
  }
}

bool RunChecker::is_enough(MemberSet members) const {
  return list_of(members | (left_ & ~evicted_ & state_)).size() >=
         static_cast<std::size_t>(scenario_.config.min_members);
}

}  // namespace horo::sim
