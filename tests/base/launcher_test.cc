// Environments as the launchers of the header's table leave them, recorded from torch 2.13, Open MPI 4.1.4, MPICH 4.0.2
// and Slurm 22.05, without variables that no rank reads.
#include "horo/base/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "horo/base/config.h"
#include "tests/base/refusal.h"

namespace horo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

const Variables kTorchrun = {{"GROUP_RANK", "0"},
                             {"GROUP_WORLD_SIZE", "1"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "localhost"},
                             {"MASTER_PORT", "38897"},
                             {"OMP_NUM_THREADS", "1"},
                             {"RANK", "1"},
                             {"ROLE_RANK", "1"},
                             {"TORCHELASTIC_MAX_RESTARTS", "3"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"},
                             {"TORCHELASTIC_RUN_ID", "64d9926c-ccce-4a06-84dd-668a2a7bdfbd"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"WORLD_SIZE", "2"}};
const Variables kMpirun = {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                           {"OMPI_COMM_WORLD_NODE_RANK", "2"},
                           {"OMPI_COMM_WORLD_RANK", "2"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_MCA_ess_base_jobid", "170328065"},
                           {"OMPI_MCA_orte_hnp_uri", "170328064.0;tcp://192.0.2.2:52369"},
                           {"PMIX_NAMESPACE", "170328065"},
                           {"PMIX_RANK", "2"}};
const Variables kMpiexec = {{"HYDI_CONTROL_FD", "7"}, {"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "1"},
                            {"PMI_FD", "8"},          {"PMI_RANK", "1"},        {"PMI_SIZE", "2"}};
// salloc -N 2; srun -n 3
const Variables kSrun = {{"SLURM_JOB_ID", "17"},
                         {"SLURM_JOB_NAME", "interactive"},
                         {"SLURM_LAUNCH_NODE_IPADDR", "192.0.2.1"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NNODES", "2"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_NTASKS", "3"},
                         {"SLURM_PROCID", "2"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_STEP_NUM_TASKS", "3"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                         {"SLURM_TASKS_PER_NODE", "2,1"}};
// The script of sbatch -N 2 -n 8
const Variables kBatchScript = {
    {"SLURM_JOB_ID", "18"}, {"SLURM_JOB_NAME", "train.sh"}, {"SLURM_LOCALID", "0"},
    {"SLURM_NNODES", "2"},  {"SLURM_NODEID", "0"},          {"SLURM_NTASKS", "8"},
    {"SLURM_PROCID", "0"},  {"SLURM_TASK_PID", "4711"},     {"SLURM_TASKS_PER_NODE", "4(x2)"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

Lookup over(const Variables& variables) {
  return [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

Launcher detect(const Variables& variables) {
  return detect_launcher(over(variables));
}

std::string launcher_refusal(const Variables& variables) {
  return refusal_of([&] { config_from(over(variables)); });
}

// "name rank/size local_rank/local_size"
std::string place(const Variables& variables) {
  const Launcher found = detect(variables);
  return found.name + " " + std::to_string(found.rank) + "/" + std::to_string(found.size) + " " +
         std::to_string(found.local_rank) + "/" + std::to_string(found.local_size);
}

constexpr const char* kNobody = " 0/1 0/1";

TEST(Launcher, WithoutVariablesThereIsNone) {
  EXPECT_EQ(place({}), kNobody);
  EXPECT_EQ(detect({}).remark, "");
}

TEST(Launcher, EveryLaunchersRanksAreRead) {
  EXPECT_EQ(place(kTorchrun), "torchrun 1/2 1/2");
  EXPECT_EQ(place(with(kTorchrun, {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"GROUP_RANK", "1"}})), "torchrun 3/4 1/2");
  EXPECT_EQ(place(kMpirun), "mpirun 2/4 2/4");
  EXPECT_EQ(place(kMpiexec), "mpiexec 1/2 1/2");
  EXPECT_EQ(place(kSrun), "srun 2/3 0/1");
}

TEST(Launcher, AStartHasANameOfItsOwn) {
  for (const auto& [variables, name] : {std::pair(kTorchrun, "TORCHELASTIC_RESTART_COUNT"),
                                        {kTorchrun, "MASTER_PORT"},
                                        {kMpirun, "OMPI_MCA_ess_base_jobid"},
                                        {kSrun, "SLURM_STEP_ID"},
                                        {kSrun, "SLURM_JOB_ID"}}) {
    EXPECT_NE(detect(variables).job, detect(with(variables, {{name, "5"}})).job) << name;
  }
}

TEST(Launcher, ARestartIsAnotherIncarnation) {
  EXPECT_EQ(detect(kTorchrun).incarnation, 2U);
  EXPECT_EQ(config_from(over(kTorchrun)).incarnation, 2U);
}

TEST(Launcher, TorchrunsHubIsItsStore) {
  EXPECT_EQ(detect(kTorchrun).hub, "localhost:38897");
  EXPECT_EQ(detect(with(kTorchrun, {{"MASTER_ADDR", "fe80::1"}})).hub, "[fe80::1]:38897");
}

TEST(Launcher, SlurmsListOfTasksByNodeIsRead) {
  const auto on_node = [](const char* node, const char* list) {
    return place(
        with(kSrun, {{"SLURM_NODEID", node}, {"SLURM_STEP_NUM_TASKS", "99"}, {"SLURM_STEP_TASKS_PER_NODE", list}}));
  };
  EXPECT_EQ(on_node("0", "2(x3),1"), "srun 2/99 0/2");
  EXPECT_EQ(on_node("2", "2(x3),1"), "srun 2/99 0/2");
  EXPECT_EQ(on_node("3", "2(x3),1"), "srun 2/99 0/1");
  EXPECT_EQ(on_node("3", "8,4(x1),2,16"), "srun 2/99 0/16");
  for (const char* list : {"", "2(x3)", "x", "2(x", "2(x)", "(x4)", "2(x9999999999999999999)", "0(x4)", "100(x4)"}) {
    EXPECT_THROW(on_node("3", list), std::invalid_argument) << list;
  }
}

TEST(Launcher, AnAllocationIsNoLauncher) {
  EXPECT_EQ(place(kBatchScript), kNobody);
  for (const char* step : {"4294967290", "4294967291", "4294967292"}) {  // interactive, batch, extern
    EXPECT_EQ(place(with(kSrun, {{"SLURM_STEP_ID", step}})), kNobody);
  }
}

TEST(Launcher, AShellThatSrunStartedIsNoRankButWhatItStartsBySrunIs) {
  const Variables shell = with(kSrun, {{"SLURM_JOB_NAME", "bash"}, {"SLURM_PTY_PORT", "40123"}});
  EXPECT_EQ(place(shell), kNobody);
  EXPECT_EQ(place(with(shell, {{"SLURM_STEP_ID", "1"}})), "srun 2/3 0/1");
  EXPECT_EQ(place(with(kSrun, {{"SLURM_JOB_NAME", "bash"}})), "srun 2/3 0/1");  // srun -n 3 bash -c 'train'
}

TEST(Launcher, WhatRunsInsideOfAStepComesFirst) {
  EXPECT_EQ(place(with(kSrun, kTorchrun)), "torchrun 1/2 1/2");
  EXPECT_EQ(place(with(kSrun, kMpirun)), "mpirun 2/4 2/4");
  EXPECT_EQ(place(with(kSrun, kMpiexec)), "mpiexec 1/2 1/2");
  EXPECT_EQ(place(with(kSrun, {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}})), "srun 2/3 0/1");  // srun --mpi=pmi2
}

TEST(Launcher, HoroRunInsideOfAnAllocationOrAStepIsMeant) {
  const Variables horo = {{"HORO_RANK", "5"}, {"HORO_SIZE", "8"}, {"HORO_ADDR", "127.0.0.1:4000"}};
  for (const Variables& outside : {kSrun, kBatchScript}) {
    const Config config = config_from(over(with(outside, horo)));
    EXPECT_EQ(config.rank, 5);
    EXPECT_EQ(config.size, 8);
    EXPECT_EQ(config.launcher.name, "");
  }
}

TEST(Launcher, LaunchersThatContradictEachOtherAreBothNamed) {
  EXPECT_THAT(launcher_refusal(with(kTorchrun, kMpirun)),
              AllOf(HasSubstr("torchrun (RANK=1, WORLD_SIZE=2"),
                    HasSubstr("mpirun (OMPI_COMM_WORLD_RANK=2, OMPI_COMM_WORLD_SIZE=4"), HasSubstr("Unset")));
  EXPECT_THAT(launcher_refusal(with(kTorchrun, {{"HORO_RANK", "0"}, {"HORO_SIZE", "2"}})),
              AllOf(HasSubstr("HORO_RANK=0, HORO_SIZE=2"), HasSubstr("RANK=1, WORLD_SIZE=2")));
}

TEST(Launcher, LaunchersThatAgreeAreNoContradiction) {
  EXPECT_EQ(place(with(kTorchrun, kMpiexec)), "torchrun 1/2 1/2");
  const Variables horo = {{"HORO_RANK", "1"}, {"HORO_SIZE", "2"}, {"HORO_ADDR", "127.0.0.1:4000"}};
  EXPECT_EQ(config_from(over(with(kTorchrun, horo))).launcher.name, "");
}

TEST(Launcher, VariablesThatHoroRunSetsForTrainersContradictNothing) {
  Variables of_horo_run = with(kTorchrun, {{"HORO_RANK", "0"}, {"HORO_SIZE", "1"}});
  of_horo_run.erase("TORCHELASTIC_RUN_ID");  // a rank starts a job of its own, with new HORO_* and its own RANK
  const Config config = config_from(over(of_horo_run));
  EXPECT_EQ(config.rank, 0);
  EXPECT_EQ(config.size, 1);
}

TEST(Launcher, AValueThatIsNoRankIsNamedWithItsLauncher) {
  EXPECT_THAT(launcher_refusal(with(kTorchrun, {{"RANK", "two"}})),
              HasSubstr("RANK=\"two\", which torchrun sets: expected a whole number from 0 to 1"));
  EXPECT_THAT(launcher_refusal(with(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "0"}})),
              HasSubstr("OMPI_COMM_WORLD_SIZE=\"0\""));
  EXPECT_THAT(launcher_refusal(with(kSrun, {{"SLURM_PROCID", "-1"}})),
              HasSubstr("SLURM_PROCID=\"-1\", which srun sets"));
}

TEST(Launcher, VariablesThatAreNearlyTorchrunsAreRemarkedOn) {
  EXPECT_THAT(detect({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).remark, HasSubstr("RANK=1, WORLD_SIZE=2 are set, but"));
}

TEST(Start, RanksOfOneHostMeetThereAndAnAddressComesFirst) {
  EXPECT_EQ(config_from(over(kTorchrun)).meet_by, MeetBy::kLocal);
  EXPECT_EQ(config_from(over(kMpirun)).meet_by, MeetBy::kLocal);
  EXPECT_EQ(config_from(over(with(kMpirun, {{"HORO_ADDR", "192.0.2.2:4000"}}))).meet_by, MeetBy::kAddr);
}

TEST(Start, MpiexecsRanksNeedANameForTheirJob) {
  EXPECT_THAT(launcher_refusal(kMpiexec), AllOf(HasSubstr("mpiexec (PMI_RANK=1"), HasSubstr("set HORO_JOB")));
  EXPECT_EQ(config_from(over(with(kMpiexec, {{"HORO_JOB", "night"}}))).meet_by, MeetBy::kLocal);
}

TEST(Start, RanksOfSeveralHostsNeedAnAddressAndAKeyAndAreToldSo) {
  for (const Variables& several : {with(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "8"}}), kSrun}) {
    EXPECT_THAT(launcher_refusal(several), AllOf(HasSubstr("started ranks on several hosts: set HORO_ADDR=host:port"),
                                                 HasSubstr("HORO_KEY_FILE")));
  }
}

TEST(Start, TorchrunsRanksOnSeveralHostsMeetByAnExchangeAndNeedAKey) {
  const Variables several = with(kTorchrun, {{"WORLD_SIZE", "4"}});
  EXPECT_THAT(launcher_refusal(several), AllOf(HasSubstr("horo.torch.init()"), HasSubstr("HORO_ADDR=host:port")));
  try {
    config_from(over(several), /*has_exchange=*/true);
    FAIL() << "no key, and accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("HORO_KEY_FILE"));
  }
}

TEST(Start, ACallersExchangeBringsPlainRanksTogether) {
  const Variables plain = {{"HORO_RANK", "0"}, {"HORO_SIZE", "2"}};
  EXPECT_EQ(config_from(over(plain), /*has_exchange=*/true).meet_by, MeetBy::kExchange);
  EXPECT_THAT(launcher_refusal(plain), HasSubstr("HORO_ADDR is not set"));
}

}  // namespace
}  // namespace horo
