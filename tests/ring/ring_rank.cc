// One rank as a process of its own, for tests that kill it: ring_rank RANK SIZE ADDR TRANSPORT MIB. Runs all_reduces of
// that size until a rank is lost; prints "ready" after the first few and "lost ORIGIN MESSAGE" at the end.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "horo/base/error.h"
#include "ring/group.h"
#include "ring/links.h"

namespace horo {
namespace {

constexpr std::uint64_t kFirst = 4;  // all_reduces of at most kSmallBytes before "ready"
constexpr std::size_t kSmallBytes = 4 << 20;

int run_rank(const Config& config, std::size_t bytes) {
  Links links = connect_tcp(config, 0, make_tcp_exchange(config, 0));
  Counters counters;
  std::vector<int> members;
  Collective c;
  for (int i = 0; i < config.size; ++i) {
    members.push_back(i);
    c.contributors.push_back(i);
  }
  const auto group = make_transport_group(links, {members, 0}, config, counters);
  std::vector<std::byte> data(bytes);
  try {
    for (c.plan = 0;; ++c.plan) {
      const std::size_t bytes_now = c.plan < kFirst ? std::min(data.size(), kSmallBytes) : data.size();
      c.in = c.out = {data.data(), bytes_now};
      c.counts = {bytes_now / 4};
      c.deadline = Clock::now() + config.deadline;
      group->run(c);
      if (c.plan + 1 == kFirst) std::puts("ready"), std::fflush(stdout);
    }
  } catch (const PeerLost& lost) {
    std::printf("lost %d %s\n", lost.origin(), lost.what());
    links.transport->abort(lost.origin(), lost.what());
    links.control->abort(lost.origin(), lost.what());
  }
  return 0;
}

}  // namespace
}  // namespace horo

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  horo::Config config;
  config.rank = config.local_rank = std::atoi(argv[1]);
  config.size = config.local_size = std::atoi(argv[2]);
  config.addr = argv[3];
  config.transport = argv[4];
  return horo::run_rank(config, static_cast<std::size_t>(std::atoi(argv[5])) << 20);
}
