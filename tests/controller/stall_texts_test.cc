#include "controller/stall_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/controller/simulator.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

TEST(StallTexts, AnErrorNamesRanksSettingAndRemedy) {
  const StallGroup stalled{{"x"}, {0, 1}, {2, 3}, false, {}};
  const std::vector<RankWaits> instead = {{2, {{"'b'", {0, 1, 3}}}, 2}, {3, {}, 0}};
  EXPECT_EQ(
      stall_head(gradient("x", {4})) + stall_text(stalled, instead, 250ms),
      "all_reduce average float32 [4] of tensor 'x': submitted by ranks 0, 1, but not by ranks 2, 3 within 250 ms "
      "(HORO_STALL_LIMIT_MS). Rank 2 waits for 'b' (not submitted by ranks 0, 1, 3) and 2 more. Rank 3 waits for "
      "no other tensor. Nothing was changed; submit it on all ranks, or raise the limit if ranks 2, 3 are only "
      "slow");
}

TEST(StallTexts, AnErrorOfAnUnnamedCallExplainsTheMatchingByOrder) {
  TensorSpec spec = gradient("all_reduce#7");
  spec.once = true;
  EXPECT_THAT(stall_head(spec),
              HasSubstr("'all_reduce#7' (a call without a name; such calls are matched by their order"));
  spec.kind = CollectiveKind::kRemoveSet;
  spec.name = "remove_process_set(3)";
  spec.shape = {3};
  EXPECT_EQ(stall_head(spec), "remove_process_set [3] of tensor 'remove_process_set(3)'");
}

TEST(StallTexts, AWarningIsOneLineForAnyNumberOfTensors) {
  std::vector<StallGroup> stalled;
  for (int i = 0; i < 50; ++i) {
    stalled.push_back({std::vector<std::string>(20, "t"), {0}, {i + 1}, false, 10s});
  }
  CoordinatorConfig config;
  config.stall_limit = 60'000ms;
  const std::string text = warning_text(stalled, {}, {}, config);
  EXPECT_THAT(text, StartsWith("tensors 't', 't', 't' and 17 more: submitted by rank 0, but not by rank 1 for 10.0 s"));
  EXPECT_THAT(text, HasSubstr("880 more tensors wait for other ranks. This is an error after 60000 ms"));
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_LT(text.size(), 1'000U);
}

TEST(StallTexts, AWarningShowsTheInnermostFramesOfFewRanks) {
  std::vector<CallSites> sites = {{{1}, true, "a.py:1 f\nb.py:2 g\nc.py:3 h\nd.py:4 i\ne.py:5 main"}};
  for (int rank = 2; rank < 9; ++rank) sites.push_back({{rank}, rank % 2 == 1, ""});
  const std::string text = warning_text({{{"x"}, {0}, {1, 2, 3}, false, 10s}}, {}, sites, CoordinatorConfig());
  EXPECT_THAT(text, HasSubstr(" Rank 1 is at a.py:1 f < b.py:2 g < c.py:3 h < d.py:4 i. Rank 2 did not answer. Rank 4 "
                              "did not answer. The places of other ranks are not shown. A slow rank is no error"));
}

TEST(StallTexts, WithoutPythonProgramsThereAreNoCallSites) {
  EXPECT_EQ(call_sites_text({{{0}, true, ""}}, {{{1, 2}, true, ""}}, 1s), "");
}

TEST(StallTexts, ARankThatIsNoPythonProgramIsNamedBesideCallSitesOfOthers) {
  EXPECT_EQ(call_sites_text({{{0}, true, "a.py:1 main"}}, {{{1, 2}, true, ""}}, 1s),
            "\nrank 0, which submitted it, is here:\n  a.py:1 main\nranks 1, 2: no call sites (not a Python program)");
}

TEST(StallTexts, ManyCallSitesAreCut) {
  std::vector<CallSites> places;
  for (int i = 0; i < 100; ++i)
    places.push_back({{i}, true, std::string(kMaxAnswerBytes, static_cast<char>('a' + i % 26))});
  EXPECT_LT(call_sites_text(places, places, 1s).size(), 2 * 7 * kMaxAnswerBytes);
}

}  // namespace
}  // namespace horo
