// Worlds of several hosts in one process, for tests of collectives in two levels.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "ring/group.h"
#include "ring/transport.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {

// The host of each member. Some layouts have hosts that are whole subtrees of the canonical tree.
inline const std::vector<int> kPairs = {0, 0, 1, 1};
inline const std::vector<std::vector<int>> kLayouts = {kPairs,
                                                       {0, 0, 1},
                                                       {0, 0, 0, 1},
                                                       {0, 0, 0, 0, 1},
                                                       {0, 0, 1, 1, 2, 2},
                                                       {0, 0, 1, 1, 2},
                                                       {0, 0, 0, 0, 1, 1, 1, 1},
                                                       {0, 0, 0, 0, 1, 1, 2, 3},
                                                       {0, 1, 1, 2},
                                                       {0, 1, 0, 1},
                                                       {0, 0, 0, 1, 1, 1}};

inline std::vector<int> everybody(std::size_t size) {
  std::vector<int> members(size);
  std::iota(members.begin(), members.end(), 0);
  return members;
}

inline std::unique_ptr<Group> group_of(Rank& rank, const std::vector<int>& hosts) {
  return make_transport_group(rank.links, {everybody(hosts.size()), 0, hosts}, rank.config, rank.counters);
}

// A transport that fails after a number of messages and probes, as if this rank's process had died.
class DyingTransport final : public Transport {
 public:
  DyingTransport(Transport& inner, int allowed) : inner_(inner), allowed_(allowed) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Op post_send(int peer, const Tag& tag, std::span<const std::byte> out) override {
    die_in_time();
    return inner_.post_send(peer, tag, out);
  }
  Op post_recv(int peer, const Tag& tag, std::span<std::byte> in) override {
    die_in_time();
    return inner_.post_recv(peer, tag, in);
  }
  void wait(std::span<const Op> ops, TimePoint deadline) override {
    die_in_time();
    inner_.wait(ops, deadline);
  }
  bool has_left(int peer) override { return inner_.has_left(peer); }
  void abort(int origin, const std::string& reason) noexcept override { inner_.abort(origin, reason); }
  Traffic traffic(std::uint32_t channel) const override { return inner_.traffic(channel); }
  std::uint64_t kernel_bytes_sent_to(int peer) const override { return inner_.kernel_bytes_sent_to(peer); }

 private:
  void die_in_time() {
    if (allowed_-- <= 0) throw std::runtime_error("died");
  }
  Transport& inner_;
  int allowed_;
};

}  // namespace horo::test
