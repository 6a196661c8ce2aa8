// Collectives of rows whose sizes all members know: they exchange no sizes, and have the same results.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/horo/worlds.h"

namespace horo {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using enum CollectiveKind;

TensorSpec known_spec(CollectiveKind kind, std::vector<std::int64_t> shape, std::vector<std::int64_t> splits = {}) {
  TensorSpec spec = spec_of(kind, "x", std::move(shape));
  spec.counts_known = true;
  spec.splits = std::move(splits);
  return spec;
}

// Values that differ between ranks and places.
std::vector<float> values_of(int rank, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), static_cast<float>(1'000'000 * rank));
  return values;
}

struct Ran {
  std::vector<float> values;
  std::vector<std::int64_t> counts;
  std::uint64_t collectives = 0;  // all_gathers, the exchange of sizes among them, and those of the kind
  bool operator==(const Ran& o) const { return values == o.values && counts == o.counts; }
};

Ran run_rows(Session& session, const TensorSpec& spec) {
  const auto collectives = [&] {
    const std::uint64_t gathers = session.counters().collectives(0, kAllGather).count;
    return spec.kind == kAllGather ? gathers : gathers + session.counters().collectives(0, spec.kind).count;
  };
  const std::vector<float> in = values_of(session.topology().rank, static_cast<std::int64_t>(spec.elements()));
  const std::uint64_t before = collectives();
  const auto work = session.submit(spec, in.data(), nullptr);
  const Outcome& outcome = outcome_of(session, work);
  return {floats(outcome), outcome.counts, collectives() - before};
}

class KnownSizes : public testing::TestWithParam<TensorSpec> {};
INSTANTIATE_TEST_SUITE_P(Kinds, KnownSizes,
                         testing::Values(known_spec(kAllGather, {4, 3}), known_spec(kGather, {4, 3}),
                                         known_spec(kAllToAll, {7, 3}), known_spec(kScatter, {5, 2}),
                                         known_spec(kAllGather, {0, 3}), known_spec(kAllGather, {300'000})),
                         [](const auto& info) {
                           return std::string(name_of(info.param.kind)) + std::to_string(info.param.elements());
                         });

TEST_P(KnownSizes, HaveTheResultOfAnExchangeOfSizesWithoutOne) {
  const auto thrown = run_world(3, [](Session& session) {
    TensorSpec spec = GetParam();
    const Ran known = run_rows(session, spec);
    spec.counts_known = false;
    spec.name = "exchanged";
    const Ran exchanged = run_rows(session, spec);
    EXPECT_EQ(known, exchanged);
    const bool is_large = spec.bytes() > (512 << 10);  // the members synchronize
    EXPECT_EQ(known.collectives, is_large ? 2u : 1u);
    EXPECT_EQ(exchanged.collectives, 2u);
    EXPECT_EQ(run_rows(session, GetParam()), known);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(KnownSplits, AreTheRowsFromEachMember) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    for (const CollectiveKind kind : {kAllGather, kGather}) {
      const Ran ran = run_rows(session, known_spec(kind, {2 * rank, 2}, {0, 2, 4}));
      EXPECT_EQ(ran.collectives, 1u);
      if (kind == kGather && rank != 0) continue;
      EXPECT_THAT(ran.counts, ElementsAre(0, 2, 4));
      std::vector<float> all = values_of(1, 4);
      const std::vector<float> last = values_of(2, 8);
      all.insert(all.end(), last.begin(), last.end());
      EXPECT_EQ(ran.values, all);
    }
  });
  EXPECT_THAT(thrown, Each(""));
}

// Each call fails by name, and the session goes on.
TEST(KnownSizesDiffer, FailOnAllMembers) {
  const auto thrown = run_world(2, [](Session& session) {
    const int rank = session.topology().rank;
    const auto failure = [&](const TensorSpec& spec) { return thrown_by([&] { run_rows(session, spec); }); };
    EXPECT_THAT(failure(known_spec(kAllGather, {rank + 4})),
                HasSubstr("all_gather of tensor 'x': ranks disagree: shape [4] on rank 0; shape [5] on rank 1"));
    TensorSpec one_sided = known_spec(kAllToAll, {4});
    one_sided.counts_known = rank == 0;
    EXPECT_THAT(failure(one_sided), HasSubstr("sizes known on rank 0; sizes exchanged on rank 1"));
    std::vector<std::int64_t> splits = {3, 2};
    if (rank == 1) splits = {1, 3};
    EXPECT_THAT(failure(known_spec(kAllGather, {3}, splits)),
                HasSubstr("splits [3, 2] on rank 0; splits [1, 3] on rank 1"));
    EXPECT_EQ(run_rows(session, known_spec(kAllGather, {4})).values.size(), 8u);
    // Both have been released before, so that their reports are numbers.
    EXPECT_EQ(run_rows(session, known_spec(kAllGather, {5})).values.size(), 10u);
    EXPECT_THAT(failure(known_spec(kAllGather, {rank + 4})), HasSubstr("shape [4] on rank 0; shape [5] on rank 1"));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(KnownSizesDiffer, FromTheSpecAtTheCall) {
  const auto thrown = run_world(2, [](Session& session) {
    const auto refusal = [&](const TensorSpec& spec, std::vector<std::int64_t> splits = {}) {
      float x[8] = {};
      Submission submission{0, x, x};
      submission.splits = std::move(splits);
      return thrown_by([&] { session.submit(spec, submission); });
    };
    EXPECT_THAT(refusal(known_spec(kAllReduce, {4})), HasSubstr("counts_known is for all_gather, gather, all_to_all"));
    EXPECT_THAT(refusal(known_spec(kAllGather, {4}, {4})), HasSubstr("1 splits, expected one for each of 2 ranks"));
    EXPECT_THAT(refusal(known_spec(kAllGather, {4}, {4, -1})), HasSubstr("a split is negative: -1"));
    EXPECT_THAT(refusal(known_spec(kGather, {4}, {3, 3})),
                HasSubstr("the splits have 3 rows from this rank, the tensor "
                          "has 4"));
    TensorSpec exchanged = known_spec(kAllGather, {4}, {4, 4});
    exchanged.counts_known = false;
    EXPECT_THAT(refusal(exchanged), HasSubstr("with counts_known alone"));
    EXPECT_THAT(refusal(known_spec(kAllToAll, {4}), {1, 3}), HasSubstr("so a submission has no splits"));
    EXPECT_THAT(refusal(known_spec(kAllToAll, {4}, {2, 2})), HasSubstr("splits are for reduce_scatter"));
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

}  // namespace
}  // namespace horo
