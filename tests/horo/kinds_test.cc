// Every kind of collective through a session: results, their memory, and refused calls.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/horo/worlds.h"

namespace horo {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using enum CollectiveKind;

// `count` values 100 * from + to.
std::vector<float> rows_for(int from, int to, std::int64_t count) {
  return std::vector<float>(static_cast<std::size_t>(count), static_cast<float>(100 * from + to));
}

void append(std::vector<float>& all, const std::vector<float>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Rows of one member for another: uneven, and 0 for many pairs.
std::int64_t rows_between(int from, int to) {
  return (3 * from + to) % 4 == 0 ? 0 : from + 2 * to;
}

TEST(Kinds, AReduceWritesTheSumOnItsRootOnly) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    TensorSpec spec = spec_of(kReduce, "x", {5});
    spec.root = 1;
    const std::vector<float> in(5, static_cast<float>(rank + 1));
    std::vector<float> out(5, -1.0f);
    session.run(spec, in.data(), rank == 1 ? out.data() : nullptr);
    EXPECT_THAT(out, Each(rank == 1 ? 6.0f : -1.0f));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Kinds, UnevenRowsAreGatheredAtTheRoot) {
  const auto thrown = run_world(4, [](Session& session) {
    const int rank = session.topology().rank;
    TensorSpec spec = spec_of(kGather, "x", {rank == 2 ? 0 : rank, 2});
    spec.root = 3;
    const std::vector<float> in = rows_for(rank, 3, 2 * spec.shape.front());
    const auto work = session.submit(spec, in.data(), nullptr);
    const Outcome& outcome = outcome_of(session, work);
    if (rank != 3) {
      EXPECT_EQ(outcome.bytes, 0u);
      return;
    }
    EXPECT_THAT(outcome.counts, ElementsAre(0, 1, 0, 3));
    EXPECT_THAT(floats(outcome), ElementsAre(103, 103, 303, 303, 303, 303, 303, 303));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Kinds, SplitsOfTheRootDistributeTheRows) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    TensorSpec spec = spec_of(kScatter, "x", {rank == 1 ? 6 : 0, 2});
    spec.root = 1;
    std::vector<float> in;
    for (int to = 0; to < 3; ++to) append(in, rows_for(1, to, std::int64_t{4} * to));
    Submission submission{0, rank == 1 ? in.data() : nullptr, nullptr};
    if (rank == 1) submission.splits = {0, 2, 4};
    const auto work = session.submit(spec, submission);
    const Outcome& outcome = outcome_of(session, work);
    EXPECT_THAT(outcome.counts, ElementsAre(2 * rank));
    EXPECT_EQ(floats(outcome), rows_for(1, rank, std::int64_t{4} * rank));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Kinds, WithoutSplitsAScatterIsEven) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    const std::vector<float> in = {0, 1, 2, 3, 4};
    const TensorSpec spec = spec_of(kScatter, "", {rank == 0 ? 5 : 0});
    const auto work = session.submit(spec, in.data(), nullptr);
    EXPECT_THAT(outcome_of(session, work).counts, ElementsAre(rank == 2 ? 1 : 2));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Kinds, EveryPartOfAnAllToAllReachesItsMember) {
  const auto thrown = run_world(5, [](Session& session) {
    const int rank = session.topology().rank;
    Submission submission;
    std::vector<float> in, expected;
    for (int other = 0; other < 5; ++other) {
      submission.splits.push_back(rows_between(rank, other));
      append(in, rows_for(rank, other, 3 * rows_between(rank, other)));
      append(expected, rows_for(other, rank, 3 * rows_between(other, rank)));
    }
    submission.in = in.data();
    const auto rows = static_cast<std::int64_t>(in.size() / 3);
    const auto work = session.submit(spec_of(kAllToAll, "x", {rows, 3}), submission);
    const Outcome& outcome = outcome_of(session, work);
    EXPECT_EQ(floats(outcome), expected);
    for (int other = 0; other < 5; ++other) {
      EXPECT_EQ(outcome.counts[static_cast<std::size_t>(other)], rows_between(other, rank));
    }
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Kinds, AReduceScatterFollowsItsSplits) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    TensorSpec spec = spec_of(kReduceScatter, "x", {5, 2});
    spec.splits = {4, 0, 1};
    std::vector<float> in(10), out(rank == 0 ? 8 : 2, -1.0f);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
    session.run(spec, in.data(), rank == 1 ? nullptr : out.data());
    const std::vector<float> all = {0, 3, 6, 9, 12, 15, 18, 21, 24, 27};
    if (rank != 1) {
      EXPECT_TRUE(std::equal(out.begin(), out.end(), rank == 0 ? all.begin() : all.begin() + 8));
    }
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Kinds, AResultOfVariableSizeIsWrittenToOut) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    const std::vector<float> in = rows_for(rank, 0, rank + 1);
    std::vector<float> out(7, -1.0f);
    const Submission submission{0, in.data(), out.data(), false, out.size() * sizeof(float)};
    const auto work = session.submit(spec_of(kAllGather, "x", {rank + 1}), submission);
    const Outcome& outcome = outcome_of(session, work);
    EXPECT_EQ(outcome.data, nullptr);
    EXPECT_EQ(outcome.bytes, 6 * sizeof(float));
    EXPECT_THAT(out, ElementsAre(0, 100, 100, 200, 200, 200, -1));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Kinds, AnOutThatIsTooSmallFailsOnThatRankOnly) {
  const auto thrown = run_world(2, [](Session& session) {
    const int rank = session.topology().rank;
    const float in[2] = {1, 2};
    float out[4] = {-1, -1, -1, -1};
    const std::size_t room = rank == 1 ? 12 : 16;
    const auto work = session.submit(spec_of(kAllGather, "x", {2}), Submission{0, in, out, false, room});
    const std::string text = thrown_by([&] { outcome_of(session, work); });
    if (rank == 0) {
      EXPECT_EQ(text, "");
      return;
    }
    EXPECT_EQ(text,
              "all_gather of tensor 'x': the result has 16 bytes, out has room for 12 (out_bytes); give more, or "
              "no out at all");
    EXPECT_THAT(out, Each(-1.0f));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Kinds, ABroadcastReadsTheInputOfTheRootOnly) {
  const auto thrown = run_world(3, [](Session& session) {
    const bool is_root = session.topology().rank == 2;
    TensorSpec spec = spec_of(kBroadcast, "x", {4});
    spec.root = 2;
    const std::vector<float> in(4, 7.0f);
    std::vector<float> out(4);
    session.run(spec, is_root ? in.data() : nullptr, out.data());
    EXPECT_THAT(out, Each(7.0f));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Kinds, ACustomOperationRunsInOrderOfRanks) {
  for (const bool whole : {false, true}) {
    const auto thrown = run_world(3, [whole](Session& session) {
      const auto combine = [](std::byte* accumulator, const std::byte* value, std::uint64_t count, DType) {
        for (std::uint64_t i = 0; i < count; ++i) {
          float a = 0, b = 0;
          std::memcpy(&a, accumulator + 4 * i, 4);
          std::memcpy(&b, value + 4 * i, 4);
          a = 10 * a + b;
          std::memcpy(accumulator + 4 * i, &a, 4);
        }
        return 0;
      };
      session.register_op({"digits", whole, combine});
      TensorSpec spec = spec_of(kAllReduce, "x", {4});
      spec.op = ReduceOp::kCustom;
      spec.custom_op = "digits";
      std::vector<float> x(4, static_cast<float>(session.topology().rank + 1));
      session.run(spec, x.data(), x.data());
      EXPECT_THAT(x, Each(123.0f));
    });
    EXPECT_THAT(thrown, Each(""));
  }
}

TEST(Kinds, AFailedCustomOperationEndsTheJobWithItsNameAndTheTensor) {
  const auto thrown = run_world(2, [](Session& session) {
    session.register_op({"broken", false, [](std::byte*, const std::byte*, std::uint64_t, DType) { return 3; }});
    TensorSpec spec = spec_of(kAllReduce, "grad", {4});
    spec.op = ReduceOp::kCustom;
    spec.custom_op = "broken";
    std::vector<float> x(4);
    session.run(spec, x.data(), x.data());
  });
  EXPECT_THAT(thrown, Each(HasSubstr("broken")));
  EXPECT_THAT(thrown, Each(HasSubstr("grad")));
}

TEST(Kinds, ACodedSumIsEqualOnAllRanksAndKeepsItsResidual) {
  const auto thrown = run_world(3, [](Session& session) {
    TensorSpec spec = spec_of(kAllReduce, "x", {2});
    spec.codec = "int8";
    double mean = 0;
    for (int step = 0; step < 50; ++step) {
      std::vector<float> x = {1.0f, 0.003f};  // below the resolution of int8 beside 1
      session.run(spec, x.data(), x.data());
      mean += x[1] / 50;
    }
    EXPECT_NEAR(mean, 0.009, 0.001);
  });
  EXPECT_THAT(thrown, Each(""));
}

class Refused : public testing::Test {
 protected:
  static std::string error_of(const TensorSpec& spec, Submission submission = {0, zeros, zeros}) {
    return thrown_by([&] { session().submit(spec, submission); });
  }
  static Session& session() {
    static Session session{Config{}};
    return session;
  }
  static TensorSpec with(CollectiveKind kind, const std::function<void(TensorSpec&)>& change) {
    TensorSpec spec = spec_of(kind, "x", {4});
    change(spec);
    return spec;
  }
  inline static float zeros[4] = {};
};

TEST_F(Refused, ARootOutsideTheWorld) {
  for (const CollectiveKind kind : {kBroadcast, kReduce, kGather, kScatter}) {
    EXPECT_THAT(error_of(with(kind, [](TensorSpec& s) { s.root = 1; })),
                HasSubstr("root 1 is not a rank of this world"));
  }
}

TEST_F(Refused, SplitsThatDoNotMatchTheRows) {
  const auto scatter = [](const std::vector<std::int64_t>& splits) {
    return Submission{0, zeros, nullptr, false, 0, splits};
  };
  const TensorSpec spec = spec_of(kScatter, "x", {4});
  EXPECT_THAT(error_of(spec, scatter({3})), HasSubstr("leave 1 of the tensor's 4 rows unassigned"));
  EXPECT_THAT(error_of(spec, scatter({5})), HasSubstr("more rows than the tensor's 4"));
  EXPECT_THAT(error_of(spec, scatter({-1})), HasSubstr("negative"));
  EXPECT_THAT(error_of(spec, scatter({2, 2})), HasSubstr("2 splits, expected one for each of 1 ranks"));
  EXPECT_THAT(error_of(with(kAllReduce, [](TensorSpec& s) { s.splits = {4}; })), HasSubstr("splits are for"));
}

TEST_F(Refused, AMessageToOneself) {
  EXPECT_THAT(error_of(with(kSendRecv, [](TensorSpec& s) { s.peer = 0; })), HasSubstr("would send to itself"));
}

TEST_F(Refused, UnregisteredOperationsAndCodecs) {
  const auto custom = with(kAllReduce, [](TensorSpec& s) { s.op = ReduceOp::kCustom, s.custom_op = "adasum"; });
  EXPECT_THAT(error_of(custom), HasSubstr("'adasum' is not registered"));
  const auto coded = with(kAllReduce, [](TensorSpec& s) { s.codec = "zip"; });
  EXPECT_THAT(error_of(coded), testing::AllOf(HasSubstr("'zip'"), HasSubstr("int8")));
  const auto product = with(kAllReduce, [](TensorSpec& s) { s.codec = "fp16", s.op = ReduceOp::kProduct; });
  EXPECT_THAT(error_of(product), HasSubstr("codec 'fp16' is for the sum or average"));
  EXPECT_THAT(error_of(with(kBroadcast, [](TensorSpec& s) { s.codec = "fp16"; })), HasSubstr("only an all_reduce"));
}

TEST_F(Refused, RequestsAsSpecs) {
  for (const CollectiveKind kind : {kAddSet, kRemoveSet, kJoin, kRebuild}) {
    EXPECT_THAT(error_of(with(kind, [](TensorSpec& s) { s.shape.clear(); })), HasSubstr("call add_set"));
  }
}

TEST_F(Refused, AnUnknownSet) {
  EXPECT_THAT(error_of(with(kAllReduce, [](TensorSpec& s) { s.set = 3; })), HasSubstr("process set 3 does not exist"));
  EXPECT_THAT(thrown_by([] { session().step_end(3); }), HasSubstr("process set 3 does not exist"));
  EXPECT_THAT(thrown_by([] { session().set_info(3); }), HasSubstr("process set 3 does not exist"));
  EXPECT_THAT(thrown_by([] { session().remove_set(0); }), HasSubstr("which stays"));
}

TEST_F(Refused, InvalidRanksOfASet) {
  EXPECT_THAT(thrown_by([] { session().add_set({}); }), HasSubstr("has none"));
  EXPECT_THAT(thrown_by([] { session().add_set({1}); }), HasSubstr("rank 1 is not in this world of 1"));
  EXPECT_THAT(thrown_by([] { session().add_set({0, 0}); }), HasSubstr("rank 0 comes twice"));
  EXPECT_THAT(thrown_by([] { session().add_set({0}); }), HasSubstr("the world has the same ranks"));
}

}  // namespace
}  // namespace horo
