#include "ring/schedule/rails.h"

#include <algorithm>
#include <map>

#include "ring/reduce/tree.h"

namespace horo {
namespace {

// The ids of a host's contributors, and their places among all contributors.
struct Summands {
  std::vector<std::int64_t> ids;
  std::vector<int> places;
};

std::vector<int> program_of(const std::vector<TreeStep>& tree) {
  std::vector<int> program;
  for (const TreeStep& step : tree) program.push_back(step.input);
  return program;
}

// Whether summing inside the hosts first, and then the hosts' sums, is the canonical order over `all`.
bool sums_in_order(const std::vector<Summands>& hosts, const std::vector<std::int64_t>& all) {
  std::vector<std::int64_t> ids;
  for (const Summands& host : hosts) ids.push_back(host.ids.front());
  std::vector<int> program;
  for (const TreeStep& host : canonical_tree(ids)) {
    if (host.input == TreeStep::kJoin) {
      program.push_back(TreeStep::kJoin);
      continue;
    }
    const Summands& own = hosts[static_cast<std::size_t>(host.input)];
    for (const TreeStep& step : canonical_tree(own.ids)) {
      program.push_back(step.input == TreeStep::kJoin ? step.input : own.places[static_cast<std::size_t>(step.input)]);
    }
  }
  return program == program_of(canonical_tree(all));
}

}  // namespace

int HostsOfGroup::host_of(int member) const {
  const auto has = [member](const std::vector<int>& of) { return std::find(of.begin(), of.end(), member) != of.end(); };
  return static_cast<int>(std::find_if(members.begin(), members.end(), has) - members.begin());
}

HostsOfGroup hosts_of_group(const std::vector<std::int64_t>& contributors, const std::vector<int>& hosts) {
  std::map<int, std::size_t> number;
  HostsOfGroup found;
  std::vector<Summands> summands;
  const auto index_of_host = [&](std::size_t member) {
    const auto [at, is_new] = number.try_emplace(hosts[member], found.members.size());
    if (is_new) found.members.emplace_back();
    return at->second;
  };
  std::vector<std::int64_t> all;
  for (std::size_t member = 0; member < contributors.size(); ++member) {
    if (contributors[member] == kAbsent) continue;
    const std::size_t host = index_of_host(member);
    if (host == summands.size()) summands.emplace_back();
    summands[host].ids.push_back(contributors[member]);
    summands[host].places.push_back(static_cast<int>(all.size()));
    all.push_back(contributors[member]);
  }
  for (const Summands& host : summands) found.contributors.push_back(host.ids.front());
  found.are_subtrees = sums_in_order(summands, all);
  for (std::size_t member = 0; member < hosts.size(); ++member) {
    found.members[index_of_host(member)].push_back(static_cast<int>(member));
  }
  found.contributors.resize(found.members.size(), kAbsent);
  return found;
}

Rails::Rails(const HostsOfGroup& hosts, std::size_t most) : members_(hosts.members) {
  std::size_t width = 0, members = 0;
  for (const auto& host : members_) width = std::max(width, host.size()), members += host.size();
  count_ = static_cast<int>(std::min(width, most));
  runs_.resize(members);
  for (int host = 0; host < hosts.size(); ++host) {
    for (int rail = 0; rail < count_; ++rail) {
      Run& run = runs_[static_cast<std::size_t>(owner(host, rail))];
      if (run.count++ == 0) run.first = rail;
    }
  }
}

int Rails::owner(int host, int rail) const {
  const auto& members = members_[static_cast<std::size_t>(host)];
  return members[static_cast<std::size_t>(rail) * members.size() / static_cast<std::size_t>(count_)];
}

Schedule Rails::lay(const Schedule& of_host, int member) const {
  Schedule laid;
  laid.name = of_host.name;
  laid.kind = of_host.kind;
  laid.size = static_cast<int>(runs_.size());
  laid.member = member;
  laid.chunks = of_host.chunks * count_;
  laid.order = of_host.order;
  laid.rounds.resize(of_host.rounds.size());
  const Run mine = of(member);
  const auto areas = static_cast<int>(of_host.scratch.size());
  for (int i = 0; i < mine.count; ++i) {
    const int rail = mine.first + i, chunk = rail * of_host.chunks;
    const auto area = [&](int of) { return of < Schedule::kFirstScratch ? of : of + i * areas; };
    const auto part = [&](const Part& of) { return Part{area(of.area), of.first + chunk, of.count}; };
    for (Scratch scratch : of_host.scratch) {
      if (scratch.base != Scratch::kFloating) scratch.base += chunk;
      laid.scratch.push_back(scratch);
    }
    for (std::size_t r = 0; r < laid.rounds.size(); ++r) {
      const Round& from = of_host.rounds[r];
      Round& to = laid.rounds[r];
      for (const Message& message : from.send) to.send.push_back({owner(message.peer, rail), part(message.part)});
      for (const Message& message : from.receive) to.receive.push_back({owner(message.peer, rail), part(message.part)});
      for (Combine combine : from.combine) {
        combine.to = part(combine.to);
        for (int& step : combine.tree) step = step == Combine::kJoin ? step : area(step);
        to.combine.push_back(combine);
      }
    }
  }
  return laid;
}

}  // namespace horo
