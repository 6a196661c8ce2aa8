// A bootstrap of two levels. Rounds are drawn in pairs, base and size together, so what changes from round to round on
// the machine is in both. Blocks, not steps, are drawn within a round: consecutive steps are alike.
#include "tools/horo/scale/interval.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace horo::tools {
namespace {

constexpr std::size_t kResamplings = 1'000;
constexpr std::size_t kTail = 25;  // of them, on each side

// Of the standard library's generator alone the sequence is the same everywhere.
using Generator = std::mt19937_64;

std::size_t drawn(Generator& random, std::size_t size) {
  return static_cast<std::size_t>(random() % size);
}

struct TimeAndWork {
  double time = 0, work = 0;
};

void add_drawn(Generator& random, const std::vector<StepBlock>& blocks, TimeAndWork& sum) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const StepBlock& block = blocks[drawn(random, blocks.size())];
    sum.time += static_cast<double>(block.time);
    sum.work += static_cast<double>(block.samples);
  }
}

}  // namespace

PpmInterval efficiency_interval(const std::vector<RoundBlocks>& rounds) {
  Generator random(1);
  std::vector<double> efficiencies;
  for (std::size_t i = 0; i < kResamplings; ++i) {
    TimeAndWork base, size;
    for (std::size_t round = 0; round < rounds.size(); ++round) {
      const RoundBlocks& one = rounds[drawn(random, rounds.size())];
      add_drawn(random, one.base, base);
      add_drawn(random, one.size, size);
    }
    const double divisor = base.work * size.time;
    efficiencies.push_back(divisor > 0 ? base.time * size.work / divisor : 0.0);
  }
  std::sort(efficiencies.begin(), efficiencies.end());
  return {std::llround(1e6 * efficiencies[kTail]), std::llround(1e6 * efficiencies[kResamplings - 1 - kTail])};
}

}  // namespace horo::tools
