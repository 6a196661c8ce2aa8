#include "tools/horo/bench/task_data.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>

namespace horo::tools {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kRequestedBytes = 100'000;

struct Buffers {
  std::vector<float> in, out;
};

// The buffers and data of all ranks, by rank. The tests fill the outputs as a right or wrong collective would.
class SimulatedTask {
 public:
  explicit SimulatedTask(const char* collective) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const TaskData& mine = data.emplace_back(BenchTask{collective, "float32", rank, kRanks}, kRequestedBytes);
      buffers.push_back(
          {std::vector<float>(mine.in_bytes() / sizeof(float)), std::vector<float>(mine.out_bytes() / sizeof(float))});
    }
  }
  void begin(std::size_t operation) {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      data[rank].begin_turn(1);
      data[rank].rewrite(buffers[rank].in.data(), operation);
    }
  }
  std::size_t wrong(std::size_t operation) {
    std::size_t wrong = 0;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      wrong += data[rank].count_wrong(buffers[rank].out.data(), operation);
    }
    return wrong;
  }
  // Copies part() elements of `from`'s input at `begin` to `to`'s output at `at`.
  void copy(std::size_t from, std::size_t begin, std::size_t to, std::size_t at) {
    std::memcpy(buffers[to].out.data() + at, buffers[from].in.data() + begin, part() * sizeof(float));
  }
  void sum(std::size_t begin, std::size_t to) {
    std::fill(buffers[to].out.begin(), buffers[to].out.end(), 0.F);
    for (const Buffers& rank : buffers) {
      for (std::size_t i = 0; i < buffers[to].out.size(); ++i) buffers[to].out[i] += rank.in[begin + i];
    }
  }
  std::size_t part() const { return data[0].count() / kRanks; }

  std::vector<Buffers> buffers;
  std::vector<TaskData> data;
};

TEST(BenchTaskData, AStaleSumIsFound) {
  SimulatedTask task("all_reduce");
  task.begin(0);
  for (std::size_t rank = 0; rank < kRanks; ++rank) task.sum(0, rank);
  EXPECT_EQ(task.wrong(0), 0U);
  EXPECT_GT(task.wrong(1), 0U);
  task.buffers[1].out.back() += 1;
  EXPECT_EQ(task.wrong(0), 1U);
}

TEST(BenchTaskData, EverySectionOfAReduceScatterIsChecked) {
  SimulatedTask task("reduce_scatter");
  task.begin(1);
  for (std::size_t rank = 0; rank < kRanks; ++rank) task.sum(rank * task.part(), rank);
  EXPECT_EQ(task.wrong(1), 0U);
  task.sum(0, 1);
  EXPECT_GT(task.wrong(1), 0U) << "the section of another rank";
}

TEST(BenchTaskData, EverySectionOfAnAllToAllIsChecked) {
  SimulatedTask task("all_to_all");
  task.begin(0);
  const std::size_t part = task.part();
  for (std::size_t from = 0; from < kRanks; ++from) {
    for (std::size_t to = 0; to < kRanks; ++to) task.copy(from, to * part, to, from * part);
  }
  EXPECT_EQ(task.wrong(0), 0U);
  task.copy(0, 0, 2, 0);
  EXPECT_GT(task.wrong(0), 0U) << "the section for another rank";
}

TEST(BenchTaskData, AGatherIsCheckedAtItsRoot) {
  SimulatedTask task("gather");
  task.begin(0);
  EXPECT_GT(task.wrong(0), 0U);
  for (std::size_t from = 0; from < kRanks; ++from) task.copy(from, 0, 0, from * task.part());
  EXPECT_EQ(task.wrong(0), 0U);
}

TEST(BenchTaskData, EachRankHasAtLeastOneElement) {
  const TaskData data({"all_gather", "float64", 0, kRanks}, 1);
  EXPECT_EQ(data.in_bytes(), 8U);
  EXPECT_EQ(data.out_bytes(), 24U);
}

TEST(BenchTaskData, AnUnknownCollectiveIsRefused) {
  EXPECT_THROW(TaskData({"all_recude", "float32", 0, kRanks}, 8), std::invalid_argument);
}

}  // namespace
}  // namespace horo::tools
