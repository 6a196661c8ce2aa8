// Horovod's variables: what they set, that horo's own win, and what is told of those without an effect.
#include "horo/base/horovod_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "tests/base/refusal.h"

namespace horo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using HorovodVariables = std::map<std::string, std::string>;

Config config_of(const HorovodVariables& variables) {
  return config_from([&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

class HorovodEnvironment {
 public:
  explicit HorovodEnvironment(HorovodVariables variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~HorovodEnvironment() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }
  HorovodEnvironment(const HorovodEnvironment&) = delete;
  HorovodEnvironment& operator=(const HorovodEnvironment&) = delete;

 private:
  HorovodVariables variables_;
};

std::vector<std::string> remarks(const HorovodVariables& variables, bool is_placed = true) {
  const HorovodEnvironment environment(variables);
  return horovod_remarks(is_placed);
}

TEST(HorovodVariables, SetWhatTheyMeanHere) {
  const Config config = config_of({{"HOROVOD_FUSION_THRESHOLD", "1048576"},
                                   {"HOROVOD_STALL_CHECK_TIME_SECONDS", "7"},
                                   {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "90"},
                                   {"HOROVOD_GLOO_TIMEOUT_SECONDS", "600"},
                                   {"HOROVOD_START_TIMEOUT", "120"}});
  EXPECT_EQ(config.bucket_bytes, 1U << 20);
  EXPECT_EQ(config.stall_warning.count(), 7'000);
  EXPECT_EQ(config.stall_limit.count(), 90'000);
  EXPECT_EQ(config.deadline.count(), 600'000);
  EXPECT_EQ(config.start_timeout.count(), 120'000);
  EXPECT_EQ(config_of({{"HOROVOD_STALL_CHECK_DISABLE", "1"}, {"HOROVOD_STALL_CHECK_TIME_SECONDS", "7"}}).stall_warning,
            std::chrono::milliseconds(0));
  EXPECT_EQ(config_of({{"HOROVOD_STALL_CHECK_DISABLE", "0"}}).stall_warning, Config().stall_warning);
  EXPECT_EQ(config_of({{"HOROVOD_TIMELINE", "/tmp/t.json"}}).timeline, "/tmp/t.json");
  EXPECT_EQ(config_of({{"HOROVOD_TIMELINE", "DYNAMIC"}}).timeline, "");
}

TEST(HorovodVariables, CountAsNoneIfTheyAreEmpty) {
  for (const char* name : {"HOROVOD_FUSION_THRESHOLD", "HOROVOD_STALL_CHECK_DISABLE", "HOROVOD_TIMELINE",
                           "HOROVOD_STALL_CHECK_TIME_SECONDS", "HOROVOD_GLOO_TIMEOUT_SECONDS"}) {
    const Config config = config_of({{name, ""}});
    EXPECT_EQ(config.bucket_bytes, Config().bucket_bytes) << name;
    EXPECT_EQ(config.stall_warning, Config().stall_warning) << name;
    EXPECT_EQ(config.deadline, Config().deadline) << name;
    EXPECT_EQ(config.timeline, "") << name;
  }
  EXPECT_THAT(remarks({{"HOROVOD_CYCLE_TIME", ""}}), IsEmpty());
  EXPECT_EQ(config_of({{"HOROVOD_STALL_CHECK_DISABLE", "-1"}}).stall_warning, Config().stall_warning);
}

TEST(HorovodVariables, LoseAgainstHoros) {
  const Config config = config_of({{"HOROVOD_FUSION_THRESHOLD", "1"},
                                   {"HORO_BUCKET_BYTES", "2"},
                                   {"HOROVOD_STALL_CHECK_DISABLE", "1"},
                                   {"HORO_STALL_WARNING_MS", "3"},
                                   {"HOROVOD_TIMELINE", "a"},
                                   {"HORO_TIMELINE", "b"}});
  EXPECT_EQ(config.timeline, "b");
  EXPECT_EQ(config.bucket_bytes, 2U);
  EXPECT_EQ(config.stall_warning.count(), 3);
}

TEST(HorovodVariables, AreRefusedByName) {
  for (const char* name : {"HOROVOD_FUSION_THRESHOLD", "HOROVOD_GLOO_TIMEOUT_SECONDS", "HOROVOD_START_TIMEOUT",
                           "HOROVOD_STALL_CHECK_TIME_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"}) {
    for (const char* value : {" ", "many", "-1", "3x", "99999999999999"}) {
      EXPECT_THAT(refusal_of([&] {
                    config_of({{name, value}});
                  }),
                  HasSubstr(std::string(name) + "=\"" + value + "\": expected a whole number from"));
    }
  }
  EXPECT_THAT(refusal_of([] { config_of({{"HOROVOD_GLOO_TIMEOUT_SECONDS", "0"}}); }), HasSubstr("from 1 to 604800"));
}

TEST(HorovodVariables, LevelsOfTheLogAreTakenInAnyCase) {
  EXPECT_EQ(log_level_of_horovod("DEBUG"), "debug");
  EXPECT_EQ(log_level_of_horovod("Warning"), "warning");
  EXPECT_EQ(log_level_of_horovod("FATAL"), "error");
  EXPECT_EQ(log_level_of_horovod("loud"), std::nullopt);
}

// Every variable of Horovod 0.28 beside those of the tests above.
constexpr const char* kWithoutEffect[] = {"HOROVOD_CYCLE_TIME",
                                          "HOROVOD_CACHE_CAPACITY",
                                          "HOROVOD_HIERARCHICAL_ALLREDUCE",
                                          "HOROVOD_HIERARCHICAL_ALLGATHER",
                                          "HOROVOD_TORUS_ALLREDUCE",
                                          "HOROVOD_AUTOTUNE",
                                          "HOROVOD_AUTOTUNE_LOG",
                                          "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
                                          "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
                                          "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
                                          "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
                                          "HOROVOD_TIMELINE_MARK_CYCLES",
                                          "HOROVOD_MPI_THREADS_DISABLE",
                                          "HOROVOD_NUM_NCCL_STREAMS",
                                          "HOROVOD_BATCH_D2D_MEMCOPIES",
                                          "HOROVOD_CONTROLLER",
                                          "HOROVOD_CPU_OPERATIONS",
                                          "HOROVOD_CCL_CACHE",
                                          "HOROVOD_GLOO_IFACE",
                                          "HOROVOD_GLOO_RENDEZVOUS_ADDR",
                                          "HOROVOD_GLOO_RENDEZVOUS_PORT",
                                          "HOROVOD_ELASTIC",
                                          "HOROVOD_SPARK_START_TIMEOUT",
                                          "HOROVOD_THREAD_AFFINITY",
                                          "HOROVOD_DISABLE_GROUP_FUSION",
                                          "HOROVOD_ENABLE_ASYNC_COMPLETION",
                                          "HOROVOD_DISABLE_NVTX_RANGES",
                                          "HOROVOD_ENABLE_XLA_OPS",
                                          "HOROVOD_ADASUM_MPI_CHUNK_SIZE",
                                          "HOROVOD_LOG_HIDE_TIME",
                                          "HOROVOD_GLOO_GET_RANK_AND_SIZE"};

TEST(HorovodVariables, WithoutAnEffectAreToldInOneLine) {
  for (const char* name : kWithoutEffect) {
    EXPECT_THAT(remarks({{name, "1"}}), ElementsAre(HasSubstr(std::string(name) + ": no effect"))) << name;
  }
  EXPECT_THAT(remarks({{"HOROVOD_CYCLE_TIME", "5"}, {"HOROVOD_AUTOTUNE", "1"}}),
              ElementsAre("HOROVOD_AUTOTUNE, HOROVOD_CYCLE_TIME: no effect in horo (docs/from_horovod.md)"));
}

TEST(HorovodVariables, ThatAreTakenOrOfABuildAreNotTold) {
  for (const char* name :
       {"HOROVOD_FUSION_THRESHOLD", "HOROVOD_TIMELINE", "HOROVOD_LOG_LEVEL", "HOROVOD_STALL_CHECK_DISABLE",
        "HOROVOD_ELASTIC_TIMEOUT", "HOROVOD_ELASTIC_RESET_LIMIT", "HOROVOD_DYNAMIC_PROCESS_SETS", "HOROVOD_RANK",
        "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME", "HOROVOD_WITH_PYTORCH", "HOROVOD_WITHOUT_MPI",
        "HOROVOD_GPU_OPERATIONS", "HOROVOD_NCCL_HOME"}) {
    EXPECT_THAT(remarks({{name, "1"}}), IsEmpty()) << name;
  }
}

TEST(HorovodVariables, OfHorovodsOwnLauncherAreTold) {
  const HorovodVariables of_horo_run = {{"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "4"}};
  EXPECT_THAT(remarks(of_horo_run, false), IsEmpty());  // in a program that a rank starts as a world of its own
  HorovodVariables of_horovod = of_horo_run;
  of_horovod["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = "10.0.0.1";
  EXPECT_THAT(remarks(of_horovod), ElementsAre(HasSubstr("no effect")));
  EXPECT_THAT(remarks(of_horovod, false),
              ElementsAre(HasSubstr("no effect"), HasSubstr("HOROVOD_SIZE=4 of Horovod's launcher is not taken")));
}

}  // namespace
}  // namespace horo
