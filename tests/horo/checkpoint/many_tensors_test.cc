// What grows with the square of the number of tensors takes minutes here.
#include <gtest/gtest.h>

#include "tests/horo/checkpoint/states.h"
#include "tests/horo/worlds.h"

namespace horo::checkpoint {
namespace {

TEST(ManyTensors, AreOpenedVerifiedAndLoadedInTime) {
  const TemporaryFolder folder;
  std::vector<StateTensor> forms;
  for (int i = 0; i < (test::kSanitized ? 10'000 : 100'000); ++i) {
    const bool is_alias = i > 0 && i % 10 == 0;
    forms.push_back({"t." + std::to_string(i), "uint8", {1}, TensorKind::kReplicated, is_alias ? i - 1 : -1});
  }
  const State saved(forms, 1);
  save_alone(folder / "one", saved);
  const TimePoint begin = Clock::now();
  Checkpoint checkpoint(folder / "one");
  verify(checkpoint);
  State loaded(forms, 2);
  load(checkpoint, nullptr, loaded.tensors());
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
  EXPECT_TRUE(loaded == saved);
}

}  // namespace
}  // namespace horo::checkpoint
