#include "ring/schedule/host_cells.h"

#include <algorithm>

namespace horo {

HostCells::HostCells(HostsOfGroup hosts, int host, std::vector<std::size_t> begins, std::size_t cell_bytes, Lags lags)
    : hosts_(std::move(hosts)),
      host_(host),
      begins_(std::move(begins)),
      cell_bytes_(cell_bytes),
      host_of_(begins_.size() - 1),
      position_of_(begins_.size() - 1),
      streams_(hosts_.members[static_cast<std::size_t>(host)].size()) {
  for (int at = 0; at < hosts_.size(); ++at) {
    const auto& members = hosts_.members[static_cast<std::size_t>(at)];
    for (std::size_t position = 0; position < members.size(); ++position) {
      host_of_[static_cast<std::size_t>(members[position])] = at;
      position_of_[static_cast<std::size_t>(members[position])] = static_cast<int>(position);
    }
  }
  std::size_t turns = 0;
  for (int member = 0; member < static_cast<int>(host_of_.size()); ++member) {
    turns = std::max<std::size_t>(turns, cells_of(member));
    most_bytes_ = std::max(most_bytes_, std::min(cell_bytes_, block(member).size));
  }
  turns += turns > 0 ? std::max(lags.own, lags.others) : 0;
  for (std::size_t turn = 0; turn < turns; ++turn) add_turn(turn, lags);
}

std::uint32_t HostCells::cells_of(int member) const {
  return static_cast<std::uint32_t>((block(member).size + cell_bytes_ - 1) / cell_bytes_);
}

HostCells::Cell HostCells::cell(int member, std::uint32_t number) const {
  const Shard whole = block(member);
  const std::size_t begin = number * cell_bytes_;
  return {member, number, {whole.begin + begin, std::min(cell_bytes_, whole.size - begin)}};
}

// Begins with the cells of the next host, so that not all hosts serve the same one at a time.
void HostCells::add_turn(std::size_t turn, Lags lags) {
  std::vector<std::vector<Cell>> own(streams_.size()), others(streams_.size());
  for (int k = 0; k < hosts_.size(); ++k) {
    const int host = (host_ + k) % hosts_.size();
    const std::size_t lag = host == host_ ? lags.own : lags.others;
    for (const int member : hosts_.members[static_cast<std::size_t>(host)]) {
      if (turn < lag || turn - lag >= cells_of(member)) continue;
      const auto number = static_cast<std::uint32_t>(turn - lag);
      const int handler = host == host_ ? member : partner(member, host_, number);
      auto& cells = host == host_ ? own : others;
      cells[static_cast<std::size_t>(position_of(handler))].push_back(cell(member, number));
    }
  }
  const bool own_first = lags.own < lags.others;
  std::size_t most = length();
  for (std::size_t position = 0; position < streams_.size(); ++position) {
    for (const auto* cells : {own_first ? &own : &others, own_first ? &others : &own}) {
      streams_[position].insert(streams_[position].end(), (*cells)[position].begin(), (*cells)[position].end());
    }
    most = std::max(most, streams_[position].size());
  }
  for (auto& stream : streams_) stream.resize(most);
}

// With as many lines between two hosts as the larger one has members, each member of either host has neighbouring
// lines: these are the positions at the other ends of the block's lines.
HostCells::Run HostCells::partners_of(int block, int host) const {
  const std::size_t own = hosts_.members[static_cast<std::size_t>(host_of(block))].size();
  const std::size_t theirs = hosts_.members[static_cast<std::size_t>(host)].size();
  const auto position = static_cast<std::size_t>(position_of(block));
  if (theirs <= own) return {position * theirs / own, 1};
  const auto first_line = [&](std::size_t of) { return (of * theirs + own - 1) / own; };
  return {first_line(position), first_line(position + 1) - first_line(position)};
}

int HostCells::partner(int block, int host, std::uint32_t number) const {
  const Run run = partners_of(block, host);
  return hosts_.members[static_cast<std::size_t>(host)][run.first + number % run.count];
}

std::vector<HostCells::Link> HostCells::links_of(int member) const {
  std::vector<Link> links;
  for (int host = 0; host < hosts_.size(); ++host) {
    if (host == host_of(member)) continue;
    add_links(member, host, kNone, links);
    for (const int other : hosts_.members[static_cast<std::size_t>(host)]) {
      add_links(other, host_of(member), member, links);
    }
  }
  return links;
}

void HostCells::add_links(int block, int host, int only, std::vector<Link>& links) const {
  const std::size_t count = partners_of(block, host).count;
  for (std::uint32_t first = 0; first < count; ++first) {
    const int its = partner(block, host, first);
    if (only == kNone || its == only) links.push_back({block, its, first, first >= cells_of(block)});
  }
}

}  // namespace horo
