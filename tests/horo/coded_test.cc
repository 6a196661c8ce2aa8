// Codecs through sessions: the bits do not depend on buckets, also for codecs with residuals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <set>

#include "tests/horo/worlds.h"

namespace horo {
namespace {

using Floats = std::vector<float>;
using testing::Each;

constexpr int kRanks = 3;

TensorSpec coded_spec(const std::string& name, std::int64_t elements, const std::string& codec) {
  TensorSpec spec = float_spec(name, elements);
  spec.op = ReduceOp::kAverage;
  spec.codec = codec;
  spec.stepwise = true;
  return spec;
}

// Gradients of eight tensors of one to 3,500 elements.
Floats gradient(int rank, int step, int tensor) {
  Floats values(static_cast<std::size_t>(tensor * 500 + 1));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i * 7 + static_cast<std::size_t>(rank * 31 + step * 101 + tensor)));
  }
  return values;
}

// The results of all steps, and the number of tensors that shared a bucket.
struct Trained {
  Floats results;
  std::uint64_t fused = 0;
};

Trained train(Session& session, const std::string& codec, int steps) {
  Trained trained;
  std::vector<Floats> values(8);
  for (int step = 0; step < steps; ++step) {
    std::vector<std::shared_ptr<Work>> works;
    for (int tensor = 0; tensor < 8; ++tensor) {
      Floats& mine = values[static_cast<std::size_t>(tensor)] = gradient(session.topology().rank, step, tensor);
      const auto spec = coded_spec("g" + std::to_string(tensor), static_cast<std::int64_t>(mine.size()), codec);
      works.push_back(session.submit({session.declare(spec), mine.data(), mine.data()}));
    }
    session.wait(works, Clock::now() + kTestDeadline);
    for (const auto& work : works) work->outcome();
    session.step_end(0);
    for (const Floats& each : values) trained.results.insert(trained.results.end(), each.begin(), each.end());
  }
  meet(session);
  const std::string json = session.counters().json();
  const auto counter = [&](const std::string& key) {
    return std::stoull(json.substr(json.find("\"" + key + "\":") + key.size() + 3));
  };
  trained.fused = counter("bucketed_tensors") - counter("buckets");
  return trained;
}

// The results of all ranks.
Trained trained_by_world(const std::string& codec, std::size_t bucket_bytes) {
  Config config;
  config.bucket_bytes = bucket_bytes;
  std::mutex mutex;
  std::vector<Trained> all;
  const auto thrown = run_world(
      kRanks,
      [&](Session& session) {
        const Trained mine = train(session, codec, 5);
        const std::lock_guard lock(mutex);
        all.push_back(mine);
      },
      config);
  EXPECT_THAT(thrown, Each(""));
  EXPECT_EQ(all.size(), std::size_t{kRanks});
  for (const Trained& each : all) EXPECT_EQ(each.results, all.front().results) << "ranks differ";
  return all.empty() ? Trained{} : all.front();
}

TEST(CodedSession, BitsDoNotDependOnBuckets) {
  for (const char* codec : {"fp8", "int8"}) {
    const Trained apart = trained_by_world(codec, 1);
    const Trained together = trained_by_world(codec, 1 << 20);
    EXPECT_EQ(apart.fused, 0u);
    EXPECT_GT(together.fused, 0u);
    EXPECT_EQ(apart.results, together.results) << codec;
  }
}

TEST(CodedSession, AnAbsentRankReceivesTheSumOfTheOthers) {
  const auto thrown = run_world(kRanks, [](Session& session) {
    Floats values(600, 3.0f);
    Submission submission{session.declare(coded_spec("x", 600, "int8")), values.data(), values.data()};
    submission.absent = session.topology().rank == 1;
    if (submission.absent) submission.in = nullptr;
    const auto work = session.submit(submission);
    outcome_of(session, work);
    for (const float value : values) EXPECT_NEAR(value, 2.0f, 0.02f);
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

// The results of a tensor that is reduced twice, with new names in between.
std::vector<Floats> reduced_twice(std::size_t kept_tensors) {
  Config config;
  config.kept_tensors = kept_tensors;
  std::mutex mutex;
  std::set<std::vector<Floats>> all;
  const auto thrown = run_world(
      kRanks,
      [&](Session& session) {
        std::vector<Floats> results(2, gradient(session.topology().rank, 1, 1));
        const auto run = [&](const std::string& name, Floats& values) {
          TensorSpec spec = coded_spec(name, static_cast<std::int64_t>(values.size()), "int8");
          spec.stepwise = false;
          session.run(spec, values.data(), values.data());
        };
        run("x", results[0]);
        for (int i = 0; i < 20; ++i) {
          Floats other(501, 1.0f);
          run("new." + std::to_string(i), other);
        }
        run("x", results[1]);
        const std::lock_guard lock(mutex);
        all.insert(results);
      },
      config);
  EXPECT_THAT(thrown, Each(""));
  EXPECT_EQ(all.size(), 1U) << "ranks differ";
  return *all.begin();
}

TEST(CodedSession, ResidualsOfNamesOutOfUseAreFreedOnAllRanks) {
  const std::vector<Floats> kept = reduced_twice(1000), freed = reduced_twice(8);
  EXPECT_NE(kept[0], kept[1]) << "the residual of the first is added to the second";
  EXPECT_EQ(freed[0], freed[1]);
  EXPECT_EQ(freed[0], kept[0]);
}

TEST(CodedSession, DifferentCodecsForOneTensorFailOnAllRanks) {
  const auto thrown = run_world(kRanks, [](Session& session) {
    Floats values(600, 3.0f);
    const auto spec = coded_spec("x", 600, session.topology().rank == 2 ? "fp16" : "int8");
    const std::string text = thrown_by([&] { session.run(spec, values.data(), values.data()); });
    EXPECT_THAT(text, testing::AllOf(testing::HasSubstr("'fp16'"), testing::HasSubstr("'int8'")));
    EXPECT_EQ(values, Floats(600, 3.0f)) << "the tensor is not written";
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

}  // namespace
}  // namespace horo
