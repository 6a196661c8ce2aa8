#include "bench/against/hosts.h"

#include <sstream>
#include <stdexcept>

#include "horo/base/shard.h"

namespace horo::bench {

HostList::HostList(const std::string& list, std::string interface) : interface_(std::move(interface)) {
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == word.size()) {
      throw std::invalid_argument("--hosts " + word + ": expected NAMESPACE=ADDRESS for every host");
    }
    hosts_.push_back({word.substr(0, equals), word.substr(equals + 1)});
  }
  if (hosts_.size() == 1) throw std::invalid_argument("--hosts " + list + ": expected at least two hosts");
}

HostList::Placement HostList::place(int rank, int ranks) const {
  if (hosts_.empty()) return {0, rank, ranks};
  const auto all = static_cast<int>(hosts_.size());
  for (int host = 0; host < all; ++host) {
    const Shard mine = shard_of(static_cast<std::size_t>(ranks), all, host);
    const int first = static_cast<int>(mine.begin), count = static_cast<int>(mine.size);
    if (rank < first + count) return {static_cast<std::size_t>(host), rank - first, count};
  }
  throw std::invalid_argument("rank " + std::to_string(rank) + " of " + std::to_string(ranks));
}

std::vector<std::string> HostList::prefix(std::size_t host) const {
  if (hosts_.empty()) return {};
  return {"ip", "netns", "exec", hosts_.at(host).name_space};
}

std::string HostList::slots(int ranks) const {
  std::string text;
  for (int rank = 0; rank < ranks; ++rank) {
    const Placement mine = place(rank, ranks);
    if (mine.local_rank > 0) continue;
    text += (rank > 0 ? "," : "") + hosts_[mine.host].address + ":" + std::to_string(mine.local_size);
  }
  return text;
}

std::string HostList::remote_shell() const {
  std::string script = "host=$1\nshift\ncase $host in\n";
  for (const Host& host : hosts_) script += host.address + ") name=" + host.name_space + " ;;\n";
  return script + "esac\nexec ip netns exec $name unshare -u sh -c 'hostname \"$0\"; exec sh -c \"$*\"' $name \"$@\"\n";
}

}  // namespace horo::bench
