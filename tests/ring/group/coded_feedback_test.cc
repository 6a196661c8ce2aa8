// Error feedback in coded all_reduces: the residuals of senders and owners, and when they are dropped.
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "tests/ring/codec/coded.h"

namespace horo::test {
namespace {

struct Step {
  std::vector<std::string> names;  // of tensors that are sent together
};

// Runs the steps with one state per tensor. Returns the values of each tensor after each step.
std::map<std::string, Floats> run_steps(int size, const std::vector<std::vector<Step>>& steps) {
  const std::map<std::string, std::size_t> counts{{"a", 700}, {"b", 3}, {"c", 5000}};
  const CodecTable table;
  std::map<std::string, Results<float>> results;
  for (const auto& [name, count] : counts) results.try_emplace(name, size);
  run_ranks_well({size, Wire::kInProcess, {}}, [&](Rank& rank) {
    std::map<std::string, CodedState> states;
    std::map<std::string, Floats> in, out, all;
    CodedScratch scratch;
    std::uint64_t plan = 0;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      for (const Step& bucket : steps[step]) {
        std::vector<CodedTensor> tensors;
        for (const std::string& name : bucket.names) {
          in[name] = values_of(rank.index(), counts.at(name), static_cast<int>(step), name);
          out[name].resize(in[name].size());
          tensors.push_back(coded_tensor(in[name], out[name], name, &states[name]));
        }
        run_coded(*rank.group, coded_collective(rank, ReduceOp::kSum, plan++), table.get("int8"), tensors, scratch);
      }
      for (const auto& [name, values] : out) all[name].insert(all[name].end(), values.begin(), values.end());
    }
    for (const auto& [name, values] : all) results.at(name).put(rank.index(), values);
  });
  std::map<std::string, Floats> ends;
  for (const auto& [name, result] : results) ends[name] = result.only();
  return ends;
}

TEST(CodedFeedback, BitsDoNotDependOnWhichTensorsAreSentTogether) {
  const std::vector<Step> apart{{{"a"}}, {{"b"}}, {{"c"}}};
  const std::vector<Step> together{{{"a", "b", "c"}}};
  const std::vector<Step> otherwise{{{"c", "b"}}, {{"a"}}};
  for (const int size : {2, 3, 4}) {
    const auto one_by_one = run_steps(size, {apart, apart, apart});
    EXPECT_EQ(run_steps(size, {together, together, together}), one_by_one);
    EXPECT_EQ(run_steps(size, {apart, together, otherwise}), one_by_one);
  }
}

// The error of the mean over `steps` averages of constant inputs.
double error_of_mean(const Codec& codec, int steps) {
  constexpr int kSize = 3;
  constexpr std::size_t kCount = 2000;
  Results<float> results(kSize);
  run_ranks_well({kSize, Wire::kInProcess, {}}, [&](Rank& rank) {
    const Floats in = values_of(rank.index(), kCount);
    Floats out(kCount);
    Doubles sum(kCount, 0.0);
    CodedState state;
    CodedScratch scratch;
    const CodedTensor tensor = coded_tensor(in, out, "t", &state);
    for (int step = 0; step < steps; ++step) {
      const auto plan = static_cast<std::uint64_t>(step);
      run_coded(*rank.group, coded_collective(rank, ReduceOp::kAverage, plan), codec, {&tensor, 1}, scratch);
      for (std::size_t i = 0; i < kCount; ++i) sum[i] += static_cast<double>(out[i]);
    }
    Floats mean;
    for (const double value : sum) mean.push_back(static_cast<float>(value / steps));
    results.put(rank.index(), mean);
  });
  return rms_of_difference(results.only(), exact_average(kSize, kCount));
}

TEST(CodedFeedback, WithErrorFeedbackTheMeanOfManyStepsConverges) {
  const CodecTable table;
  const double once = error_of_mean(table.get("int8"), 1);
  EXPECT_GT(once, 1e-3);
  EXPECT_LT(error_of_mean(table.get("int8"), 64), once / 30);
  EXPECT_GT(error_of_mean(table.get("fp8"), 64), 0.9 * error_of_mean(table.get("fp8"), 1)) << "fp8 keeps no residual";
}

TEST(CodedFeedback, ResidualsOfOwnersAreDroppedAndReportedWhenMembersChange) {
  const CodecTable table;
  constexpr std::size_t kCount = 3000;
  std::vector<CodedState> states(4);
  const auto run_with = [&](int size, bool expect_drop) {
    run_ranks_well({size, Wire::kInProcess, {}}, [&](Rank& rank) {
      CodedState& state = states[static_cast<std::size_t>(rank.index())];
      const std::size_t owned = state.owner.size();
      const Floats in = values_of(rank.index(), kCount);
      Floats out(kCount);
      CodedScratch scratch;
      const CodedTensor tensor = coded_tensor(in, out, "t", &state);
      const CodedReport report =
          run_coded(*rank.group, coded_collective(rank), table.get("int8"), {&tensor, 1}, scratch);
      EXPECT_EQ(report.dropped, expect_drop ? owned : 0);
      EXPECT_EQ(report.norm > 0, expect_drop);
      EXPECT_EQ(state.sender.size(), kCount);
    });
  };
  run_with(4, false);
  run_with(4, false);
  run_with(3, true);
  run_with(3, false);
}

// int8, which fails after a number of calls.
class Failing final : public Codec {
 public:
  const std::string& name() const override { return right_.name(); }
  std::size_t block() const override { return right_.block(); }
  std::size_t wire_bytes(std::size_t count) const override { return right_.wire_bytes(count); }
  bool stateful() const override { return true; }
  void encode(const float* x, float* residual, std::byte* wire, std::size_t count) const override {
    right_.encode(x, residual, wire, count);
  }
  void decode(const std::byte* wire, float* out, std::size_t count) const override {
    if (fails) throw std::runtime_error("status 7");
    right_.decode(wire, out, count);
  }
  bool fails = false;

 private:
  const CodecTable table_;
  const Codec& right_ = table_.get("int8");
};

TEST(CodedFeedback, ACallThatFailsNamesCodecAndTensorAndLeavesTheStateAsItWas) {
  run_ranks_well({1, Wire::kInProcess, {}}, [](Rank& rank) {
    Failing codec;
    const Floats in = values_of(0, 1000);
    Floats out(1000);
    CodedState state;
    CodedScratch scratch;
    const CodedTensor tensor = coded_tensor(in, out, "t", &state);
    run_coded(*rank.group, coded_collective(rank), codec, {&tensor, 1}, scratch);
    const CodedState before = state;
    codec.fails = true;
    try {
      run_coded(*rank.group, coded_collective(rank, ReduceOp::kAverage, 1), codec, {&tensor, 1}, scratch);
      FAIL() << "it did not fail";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "codec 'int8' in the all_reduce of tensor 't': status 7");
    }
    EXPECT_EQ(state.sender, before.sender);
    EXPECT_EQ(state.owner, before.owner);
  });
}

}  // namespace
}  // namespace horo::test
