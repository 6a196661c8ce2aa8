// Ranks that submit tensors in rounds of one round stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/controller/ranks.h"

namespace horo {

constexpr std::uint64_t kRoundStream = 5;

inline TensorSpec in_round(const std::string& name, std::uint32_t set = 0) {
  TensorSpec spec = in_set(set, name);
  spec.round_stream = kRoundStream;
  return spec;
}

inline std::vector<TensorSpec> in_rounds(const std::vector<std::string>& names) {
  std::vector<TensorSpec> specs;
  for (const std::string& name : names) specs.push_back(in_round(name));
  return specs;
}

inline void begin_on(Ranks& ranks, const std::vector<int>& some, RoundNumber round, std::uint32_t set = 0) {
  for (const int rank : some) ranks[rank].begin_round({set, kRoundStream}, round);
}

inline void fail_on(Ranks& ranks, int rank, const std::string& reason = "ValueError: no") {
  ranks[rank].fail_round({0, kRoundStream}, reason);
  ranks.settle();
}

// Steps of round 1 until the tensors are in known plans.
inline void learn_plans_in_rounds(Ranks& ranks, const std::vector<TensorSpec>& specs) {
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (int rank = 0; rank < ranks.size(); ++rank) ranks[rank].begin_round({0, kRoundStream}, {step, 1});
    ranks.step(specs);
  }
  ASSERT_TRUE(ranks[0].stream().back().known);
}

// The same failures on these ranks, each of which begins with "tensor '<name>'" and has the text.
inline void expect_failures(Ranks& ranks, const std::vector<int>& some, const std::vector<std::string>& names,
                            const std::string& text) {
  for (const int rank : some) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(ranks[rank].failures(), ranks[some.front()].failures());
    ASSERT_EQ(ranks[rank].failures().size(), names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      EXPECT_EQ(ranks[rank].failures()[i].name, names[i]);
      EXPECT_THAT(ranks[rank].failures()[i].text, AllOf(StartsWith("tensor '" + names[i] + "'"), HasSubstr(text)));
    }
    EXPECT_TRUE(ranks[rank].idle()) << ranks[rank].in_flight();
  }
}

}  // namespace horo
