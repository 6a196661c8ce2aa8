// BrokenLinks: how often the links between the same two members, or the same two hosts, have ended an epoch, with no
// member lost in between.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

namespace horo {

class BrokenLinks {
 public:
  static constexpr int kMost = 3;

  using Pair = std::pair<std::uint32_t, std::uint32_t>;  // lower number first
  using Counts = std::map<Pair, int>;

  BrokenLinks() = default;
  BrokenLinks(Counts members, Counts hosts) : members_(std::move(members)), hosts_(std::move(hosts)) {}

  // The link between these has ended an epoch. Whether that is the last time that it may: then one of them goes, and
  // all are counted anew.
  bool add_members(const Pair& pair) { return add(members_, pair); }
  bool add_hosts(const Pair& pair) { return add(hosts_, pair); }
  void clear() {
    members_.clear();
    hosts_.clear();
  }
  const Counts& members() const { return members_; }
  const Counts& hosts() const { return hosts_; }

 private:
  static bool add(Counts& counts, const Pair& pair) {
    if (++counts[pair] < kMost) return false;
    counts.clear();
    return true;
  }

  Counts members_, hosts_;
};

}  // namespace horo
