// A name that is used again travels as a number, whatever its kind: no name and no step end are needed.
#include "tests/controller/ranks.h"

namespace horo {
namespace {

using enum CollectiveKind;

class Named : public testing::TestWithParam<CollectiveKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Named,
                         testing::Values(kAllReduce, kAllGather, kBroadcast, kAllToAll, kBarrier, kReduceScatter,
                                         kReduce, kGather, kScatter, kSendRecv),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TensorSpec spec_of_kind(CollectiveKind kind, const std::string& name) {
  TensorSpec spec = gradient(name);
  spec.kind = kind;
  spec.stepwise = false;
  if (kind == kBarrier) spec.shape.clear();
  if (kind == kSendRecv) spec.root = 0, spec.peer = 1;
  return spec;
}

TEST_P(Named, TravelsAsANumberFromItsSecondUseOn) {
  Ranks ranks(2);
  const TensorSpec spec = spec_of_kind(GetParam(), "layers.11.attention.weight");
  ranks.submit({spec});
  for (int use = 0; use < 3; ++use) {
    ranks.sent.clear();
    ranks.submit({spec});
    ASSERT_EQ(ranks.sent.size(), 2U) << "a report and a release";
    for (const Send& send : ranks.sent) {
      EXPECT_TRUE(send.has_bits && !send.has_names);
      EXPECT_LE(send.bytes.size(), send.to == 0 ? 44U : 36U);
      RecordProperty(send.to == 0 ? "report" : "release", std::to_string(send.bytes.size()));
    }
  }
  EXPECT_EQ(ranks[0].times(spec.name), 4);
}

// 64 names that are in flight together share a report and a release.
TEST_P(Named, SixtyFourOfABatchShareAMessage) {
  Ranks ranks(2);
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 64; ++i) specs.push_back(spec_of_kind(GetParam(), "slot " + std::to_string(i)));
  ranks.submit(specs);
  ranks.sent.clear();
  ranks.submit(specs);
  ASSERT_EQ(ranks.sent.size(), 2U);
  for (const Send& send : ranks.sent) {
    EXPECT_FALSE(send.has_names);
    RecordProperty(send.to == 0 ? "report" : "release", std::to_string(send.bytes.size()));
  }
  EXPECT_LE(ranks.sent[0].bytes.size(), 60U);
}

// Each number of rows is a spec of its own on a rank, and all of them are of one number of the leader.
TEST(NamedRows, OfAnAllGatherAreNamedOnce) {
  Ranks ranks(2);
  TensorSpec spec = spec_of_kind(kAllGather, "rows");
  const auto submit = [&](std::int64_t rows) {
    spec.shape.front() = rows;
    ranks.sent.clear();
    ranks.submit({spec});
    return ranks.sent.front().has_names;
  };
  EXPECT_TRUE(submit(1));
  EXPECT_TRUE(submit(2));
  EXPECT_FALSE(submit(1));
  EXPECT_FALSE(submit(2));
}

}  // namespace
}  // namespace horo
