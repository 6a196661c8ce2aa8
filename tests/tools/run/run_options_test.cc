// The meaning of horo run's command line, and the errors for an invalid one.
#include "tools/horo/run/run_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

namespace horo::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RunOptions options_of(int ranks) {
  RunOptions options;
  options.ranks = ranks;
  options.command = {"true"};
  return options;
}

RunOptions on_hosts(int nodes, int node_rank) {
  RunOptions options = options_of(2);
  options.nodes = nodes;
  options.node_rank = node_rank;
  options.addr = "127.0.0.1:29400";
  options.key_file = "key";
  return options;
}

std::string refusal(const RunOptions& options) {
  try {
    launch_of(options);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RunOptions, OneHostHasItsRanks) {
  const Launch launch = launch_of(options_of(4));
  EXPECT_EQ(launch.ranks(), 4);
  EXPECT_EQ(launch.size(), 4);
  EXPECT_EQ(launch.first_rank(), 0);
  EXPECT_EQ(launch.addr, "");
}

TEST(RunOptions, HostsMayDifferInTheirRanks) {
  RunOptions options = on_hosts(3, 1);
  options.ranks.reset();
  options.ranks_per_node = "2,1,4";
  const Launch launch = launch_of(options);
  EXPECT_EQ(launch.ranks(), 1);
  EXPECT_EQ(launch.first_rank(), 2);
  EXPECT_EQ(launch.size(), 7);
}

TEST(RunOptions, HostsHaveEqualRanksByDefault) {
  EXPECT_THAT(launch_of(on_hosts(3, 2)).ranks_by_host, ElementsAre(2, 2, 2));
  EXPECT_EQ(launch_of(on_hosts(3, 2)).first_rank(), 4);
}

TEST(RunOptions, HorovodsHostsMeanThisHost) {
  RunOptions options = options_of(2);
  options.hosts = "localhost:4";
  EXPECT_EQ(launch_of(options).ranks(), 2);
  options.ranks.reset();
  EXPECT_EQ(launch_of(options).ranks(), 4);
  options.ranks = 5;
  EXPECT_THAT(refusal(options), HasSubstr("more ranks than the 4 slots of --hosts localhost:4"));
}

TEST(RunOptions, TheErrorForAMissingKeyShowsHowToMakeOne) {
  RunOptions options = on_hosts(2, 0);
  options.key_file.clear();
  EXPECT_THAT(refusal(options), HasSubstr("head -c 32 /dev/urandom > key; chmod 600 key"));
}

TEST(RunOptions, SeveralHostsNeedAnAddressAndANumber) {
  RunOptions options = on_hosts(2, 0);
  options.addr.clear();
  EXPECT_THAT(refusal(options), HasSubstr("expected --addr HOST:PORT too"));
  options = on_hosts(2, 2);
  EXPECT_THAT(refusal(options), HasSubstr("--node-rank 2: expected 0 to 1 with --nnodes 2"));
  options.node_rank.reset();
  EXPECT_THAT(refusal(options), HasSubstr("expected --node-rank too"));
}

TEST(RunOptions, RanksPerNodeMustFit) {
  RunOptions options = on_hosts(2, 0);
  options.ranks_per_node = "2,1,1";
  EXPECT_THAT(refusal(options), HasSubstr("expected one number for each of --nnodes 2"));
  options.ranks_per_node = "3,1";
  EXPECT_THAT(refusal(options), HasSubstr("-n 2: --ranks-per-node 3,1 gives 3 to --node-rank 0"));
  options.ranks_per_node = "2,x";
  EXPECT_THAT(refusal(options), HasSubstr("not \"x\""));
}

TEST(RunOptions, NumbersOfRanksHaveLimits) {
  for (const int ranks : {0, -1, 1025}) {
    EXPECT_THAT(refusal(options_of(ranks)), HasSubstr("expected a number of ranks from 1 to 1024")) << ranks;
  }
}

TEST(RunOptions, VariablesAreGivenOrPassedOn) {
  RunOptions options = options_of(1);
  options.variables = {"A=b=c", "PATH", "EMPTY="};
  const auto variables = launch_of(options).variables;
  ASSERT_EQ(variables.size(), 3u);
  EXPECT_EQ(variables[0].second, "b=c");
  EXPECT_EQ(variables[1].second, std::getenv("PATH"));
  EXPECT_EQ(variables[2].second, "");
}

TEST(RunOptions, InvalidVariablesAreRefused) {
  RunOptions options = options_of(1);
  for (const auto& [variable, why] :
       {std::pair("HORO_RANK=3", "horo run itself sets HORO_RANK"),
        std::pair("HORO_NEVER_SET_HERE", "it is not set in this environment"), std::pair("=x", "NAME=VALUE"),
        std::pair("HORO_KEY_FILE=x", "horo run itself sets")}) {
    options.variables = {variable};
    EXPECT_THAT(refusal(options), HasSubstr(why));
  }
}

TEST(RunOptions, FoldersMustExist) {
  RunOptions options = options_of(1);
  options.cwd = "/no/such/folder";
  EXPECT_THAT(refusal(options), HasSubstr("--cwd /no/such/folder: No such file or directory"));
  options.cwd = "/dev/null";
  EXPECT_THAT(refusal(options), HasSubstr("expected a folder"));
}

TEST(RunOptions, AStartTimeoutBecomesTheSetting) {
  RunOptions options = options_of(1);
  options.start_timeout_s = 1.5;
  EXPECT_THAT(launch_of(options).variables, ElementsAre(testing::Pair("HORO_START_TIMEOUT_MS", "1500")));
}

TEST(RunOptions, AnUnknownBindingNamesTheKnownOnes) {
  RunOptions options = options_of(1);
  options.bind_to = "socket";
  EXPECT_EQ(refusal(options), "--bind-to socket: expected auto, none or core");
}

TEST(RunOptions, ALeastNumberOfRanksMakesTheJobElastic) {
  EXPECT_EQ(launch_of(options_of(4)).min_ranks, 0);
  RunOptions options = options_of(4);
  options.min_ranks = 2;
  options.max_ranks = 8;
  options.evict_after_s = 0.5;
  const Launch launch = launch_of(options);
  EXPECT_EQ(launch.min_ranks, 2);
  EXPECT_EQ(launch.evict_after_s, 0.5);
  EXPECT_EQ(launch.park_timeout_s, 60);
}

TEST(RunOptions, AnElasticJobThatNoAgentTakesIsRefusedByName) {
  RunOptions options = options_of(4);
  options.min_ranks = 2;
  for (const double seconds : {0.0001, 1'000'001.0, std::numeric_limits<double>::infinity()}) {
    options.evict_after_s = seconds;
    EXPECT_EQ(refusal(options), "--evict-after: expected 0.001 to 1000000 seconds") << seconds;
  }
  options.evict_after_s = 0.001;
  options.park_timeout_s = 1'000'001;
  EXPECT_EQ(refusal(options), "--park-timeout: expected at most 1000000 seconds");
  options.park_timeout_s = 1'000'000;
  EXPECT_EQ(refusal(options), "accepted");
  options = on_hosts(1'025, 0);
  EXPECT_EQ(refusal(options), "accepted");
  options.min_ranks = 2;
  EXPECT_EQ(refusal(options), "--min-np: an elastic job has at most 1024 hosts, not 1025");
  options = on_hosts(1'024, 0);
  options.min_ranks = 2;
  EXPECT_EQ(refusal(options), "accepted");
  options.ranks = 1'024;
  EXPECT_EQ(refusal(options), "--min-np: an elastic job has at most 8192 ranks, not 1048576");
}

TEST(RunOptions, AnElasticJobOfOneHostReplacesRanks) {
  RunOptions options = options_of(4);
  EXPECT_EQ(launch_of(options).restarts, 0);
  options.min_ranks = 2;
  EXPECT_EQ(launch_of(options).restarts, 5);
  EXPECT_EQ(launch_of(options).slots(), 4);
  options.restarts = 0;
  options.max_ranks = 6;
  options.cool_down_s = 1.5;
  const Launch launch = launch_of(options);
  EXPECT_EQ(launch.restarts, 0);
  EXPECT_EQ(launch.slots(), 6);
  EXPECT_EQ(launch.cool_down_s, 1.5);
}

TEST(RunOptions, AJobOnSeveralHostsReplacesNoRanks) {
  RunOptions options = on_hosts(2, 0);
  options.min_ranks = 2;
  options.max_ranks = 100;
  options.restarts = 0;
  EXPECT_EQ(launch_of(options).slots(), launch_of(options).ranks());
  options.restarts = 1;
  EXPECT_EQ(
      refusal(options),
      "--restarts: a job on several hosts starts no rank again in this version; it goes on without those that fail");
  options.restarts.reset();
  options.cool_down_s = 1;
  EXPECT_EQ(refusal(options).substr(0, 40), "--cool-down: a job on several hosts star");
}

TEST(RunOptions, AnElasticJobHasAGraceAndOneOfOneHostIfItIsGiven) {
  RunOptions several = on_hosts(2, 0);
  several.grace_s = 4;
  EXPECT_THAT(refusal(several), HasSubstr("--grace: expected --min-np too"));
  RunOptions options = options_of(4);
  EXPECT_EQ(launch_of(options).grace_s, 0);
  options.grace_s = 4;
  EXPECT_EQ(launch_of(options).grace_s, 4);
  options.grace_s.reset();
  options.min_ranks = 2;
  EXPECT_EQ(launch_of(options).grace_s, 30);
  for (const double grace_s : {0.0, 0.5, 86'400.0}) {
    options.grace_s = grace_s;
    EXPECT_EQ(launch_of(options).grace_s, grace_s);
  }
  for (const double grace_s : {-1.0, 86'401.0, std::numeric_limits<double>::quiet_NaN()}) {
    options.grace_s = grace_s;
    EXPECT_EQ(refusal(options), "--grace: expected 0 to 86400 seconds");
  }
}

TEST(RunOptions, Host0RunsTheRendezvousAtTheNextPort) {
  for (const int host : {0, 1}) {
    RunOptions options = on_hosts(2, host);
    options.min_ranks = 3;  // of both hosts
    options.addr = "127.0.0.1:29400";
    const Launch launch = launch_of(options);
    EXPECT_EQ(launch.rendezvous, "127.0.0.1:29401");
    EXPECT_EQ(launch.embeds_rendezvous, host == 0);
    options.rendezvous = "127.0.0.1:7000";
    EXPECT_EQ(launch_of(options).rendezvous, "127.0.0.1:7000");
    EXPECT_FALSE(launch_of(options).embeds_rendezvous);
  }
}

TEST(RunOptions, ARendezvousThatCannotBeIsRefused) {
  RunOptions options = on_hosts(2, 0);
  options.min_ranks = 1;
  options.addr = "127.0.0.1:65535";
  EXPECT_THAT(refusal(options), HasSubstr("expected a port from 1 to 65534"));
  options = options_of(2);
  options.min_ranks = 1;
  options.rendezvous = "127.0.0.1:7000";
  EXPECT_THAT(refusal(options), HasSubstr("--rendezvous: the job has one host"));
}

TEST(RunOptions, TheVariablesOfElasticJobsAreSetByTheLauncher) {
  RunOptions options = options_of(2);
  options.variables = {"HORO_MIN_NP=1"};
  EXPECT_THAT(refusal(options), HasSubstr("horo run itself sets HORO_MIN_NP"));
}

}  // namespace
}  // namespace horo::tools
