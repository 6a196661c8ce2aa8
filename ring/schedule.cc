// The rounds of the ring and of the direct exchange, as formulas over ranks.

#include "ring/schedule.h"

#include "ring/say.h"

namespace horo {
namespace {

int wrap(int value, int size) {
  return (value % size + size) % size;
}

}  // namespace

std::vector<Step> ring_schedule(int size, int rank) {
  std::vector<Step> steps;
  for (int round = 0; round < 2 * (size - 1); ++round) {
    // What leaves to the right is what came from the left a round ago; at first it is one's own shard.
    steps.push_back({.to = wrap(rank + 1, size),
                     .send = wrap(rank - round, size),
                     .from = wrap(rank - 1, size),
                     .recv = wrap(rank - round - 1, size),
                     .reduce = round < size - 1});
  }
  return steps;
}

std::vector<Step> direct_schedule(int size, int rank) {
  std::vector<Step> steps;
  for (int half = 0; half < 2; ++half) {
    for (int k = 1; k < size; ++k) {
      const int to = wrap(rank + k, size);
      const int from = wrap(rank - k, size);
      const bool reduce = half == 0;
      steps.push_back(
          {.to = to, .send = reduce ? to : rank, .from = from, .recv = reduce ? rank : from, .reduce = reduce});
    }
  }
  return steps;
}

std::string print(const std::vector<Step>& steps, int rank) {
  std::string text;
  for (const Step& step : steps) {
    text += say("r", rank, ":");
    if (step.to >= 0) text += say(" send ", step.send, " to ", step.to, step.from >= 0 ? "," : "");
    if (step.from >= 0) text += say(" receive ", step.recv, " from ", step.from, step.reduce ? ", reduce" : "");
    text += "\n";
  }
  return text;
}

}  // namespace horo
