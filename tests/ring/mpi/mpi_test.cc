// Streams over MPI, with an MPI whose ranks are threads: the start, errors of MPI, and that MPI never holds the memory
// of a caller. transport_test.cc tests the contract of all transports, tests/python/test_mpi.py Open MPI itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <latch>
#include <stdexcept>

#include "horo/base/error.h"
#include "ring/links.h"
#include "ring/mpi/mpi_library.h"
#include "ring/mpi/mpi_world.h"
#include "tests/ring/mpi/fake_mpi.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// What each rank throws when it starts over this MPI.
std::vector<std::exception_ptr> start_over(const FakeMpiOptions& options, std::chrono::milliseconds timeout) {
  const auto mpi = make_fake_mpi(options);
  const std::string addr = free_address();
  std::vector<std::function<void()>> functions;
  for (int rank = 0; rank < options.size; ++rank) {
    functions.push_back([&, rank] {
      Config config = config_of(rank, options.size, addr);
      config.backend = "mpi";
      config.start_timeout = timeout;
      play_mpi_rank(mpi, rank);
      connect_tcp(config, 0, make_tcp_exchange(config, 0), &fake_mpi_api());
    });
  }
  auto errors = run_threads(functions);
  take_given_up();
  return errors;
}

constexpr std::chrono::seconds kEnough{20};

TEST(MpiStart, ADifferentSizeIsRefusedWithBoth) {
  for (const auto& error : start_over({.size = 2, .claimed_size = 1}, kEnough)) {
    EXPECT_THAT(message_of(error), AllOf(HasSubstr("HORO_BACKEND=mpi: MPI reports"), HasSubstr("of 1, and horo"),
                                         HasSubstr("of 2: expected ranks that Open MPI's own mpirun started")));
  }
}

TEST(MpiStart, ALowThreadLevelIsRefusedByItsName) {
  const auto errors = start_over({.size = 2, .threads = MpiThreads::kFunneled}, kEnough);
  for (const auto& error : errors) {
    EXPECT_THAT(message_of(error), AllOf(HasSubstr("MPI_THREAD_FUNNELED"), HasSubstr("expected MPI_THREAD_MULTIPLE")));
  }
}

TEST(MpiStart, SerializedThreadsAreAccepted) {
  for (const auto& error : start_over({.size = 3, .threads = MpiThreads::kSerialized}, kEnough)) {
    EXPECT_EQ(message_of(error), "");
  }
}

TEST(MpiStart, AnMpiThatHasEndedIsRefused) {
  const auto errors = start_over({.size = 2, .was_ended = true}, kEnough);
  for (const auto& error : errors) EXPECT_THAT(message_of(error), HasSubstr("MPI_Finalize was called"));
}

TEST(MpiStart, AMissingRankIsWaitedForUntilTheStartTimeout) {
  std::size_t late = 0;
  for (const auto& error : start_over({.size = 3, .stays_away = 1}, std::chrono::milliseconds(500))) {
    late +=
        message_of(error).find("not all ranks started MPI within 500 ms (HORO_START_TIMEOUT_MS)") != std::string::npos;
    EXPECT_THAT(message_of(error), testing::ContainsRegex("started MPI within|ended while MPI was starting"));
  }
  EXPECT_GE(late, 1u);
}

TEST(MpiStart, DifferentBackendsAreRefusedWithTheirRanks) {
  const auto mpi = make_fake_mpi({.size = 2});
  const std::string addr = free_address();
  std::vector<std::function<void()>> functions;
  for (int rank = 0; rank < 2; ++rank) {
    functions.push_back([&, rank] {
      Config config = config_of(rank, 2, addr);
      if (rank == 1) config.backend = "mpi";
      play_mpi_rank(mpi, rank);
      connect_tcp(config, 0, make_tcp_exchange(config, 0), rank == 1 ? &fake_mpi_api() : nullptr);
    });
  }
  for (const auto& error : run_threads(functions)) {
    EXPECT_EQ(message_of(error), "HORO_BACKEND must be equal on all ranks: it is auto on rank 0, mpi on rank 1");
  }
}

// Sets a variable of a launcher while it exists.
class MpiVariable {
 public:
  explicit MpiVariable(const char* value) { ::setenv("OMPI_COMM_WORLD_SIZE", value, 1); }
  ~MpiVariable() { ::unsetenv("OMPI_COMM_WORLD_SIZE"); }
};

std::string refusal_of_library(const Config& config) {
  try {
    load_mpi(config);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(MpiLibrary, WithoutMpirunThePlugInIsNotLoaded) {
  Config config;
  config.mpi_library = "/nowhere/libhoro_mpi.so";
  EXPECT_THAT(refusal_of_library(config), HasSubstr("not started by MPI (neither OMPI_COMM_WORLD_SIZE nor PMIX_RANK"));
}

TEST(MpiLibrary, AMissingPlugInIsNamedWithPackageAndSetting) {
  const MpiVariable variable("2");
  Config config;
  config.mpi_library = "/nowhere/libhoro_mpi.so";
  EXPECT_THAT(refusal_of_library(config), AllOf(HasSubstr("there is no /nowhere/libhoro_mpi.so"),
                                                HasSubstr("libopenmpi-dev"), HasSubstr("HORO_MPI_LIBRARY")));
}

using MpiBytes = std::vector<std::byte>;

TEST(MpiTransport, AnErrorOfMpiEndsTheTransportAndNamesThePeer) {
  const auto mpi = make_fake_mpi({.size = 2, .most_messages = 3});
  const std::string addr = free_address();
  std::vector<std::function<void()>> functions;
  for (int index = 0; index < 2; ++index) {
    functions.push_back([&, index] {
      Config config = config_of(index, 2, addr);
      config.backend = "mpi";
      play_mpi_rank(mpi, index);
      const Links links = connect_tcp(config, 0, make_tcp_exchange(config, 0), &fake_mpi_api());
      const MpiBytes out(4 << 20);
      MpiBytes in(4 << 20);
      const std::vector<Transport::Op> ops{links.transport->post_send(1 - index, {}, out),
                                           links.transport->post_recv(1 - index, {}, in)};
      links.transport->wait(ops, soon());
    });
  }
  const auto errors = run_threads(functions);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(origin_of(errors[static_cast<std::size_t>(rank)]), 1 - rank);
  EXPECT_NE(take_given_up(), "");
}

TEST(MpiTransport, NoRequestIsOpenAfterARegularEnd) {
  const auto mpi = make_fake_mpi({.size = 3});
  const std::string addr = free_address();
  std::vector<std::function<void()>> functions;
  take_given_up();
  for (int index = 0; index < 3; ++index) {
    functions.push_back([&, index] {
      Config config = config_of(index, 3, addr);
      config.backend = "mpi";
      play_mpi_rank(mpi, index);
      const Links links = connect_tcp(config, 0, make_tcp_exchange(config, 0), &fake_mpi_api());
      const MpiBytes out(1'000'000, std::byte{5});
      MpiBytes in(1'000'000);
      const std::vector<Transport::Op> ops{links.transport->post_send((index + 1) % 3, {}, out),
                                           links.transport->post_recv((index + 2) % 3, {}, in)};
      links.transport->wait(ops, soon());
      EXPECT_EQ(in, out);
    });
  }
  for (const auto& error : run_threads(functions)) EXPECT_EQ(message_of(error), "");
  EXPECT_EQ(open_requests(*mpi), 0u);
  EXPECT_EQ(take_given_up(), "");
}

// In a barrier a rank sends to a peer from which it receives nothing; that peer may be the one that cancels the plan.
TEST(MpiTransport, ACancellationArrivesFromAPeerThatWasOnlySentTo) {
  run_ranks_well({4, Wire::kMpi, {}}, [](Rank& rank) {
    Collective barrier;
    barrier.kind = CollectiveKind::kBarrier;
    barrier.deadline = soon();
    for (barrier.plan = 0; barrier.plan < 10; ++barrier.plan) {
      barrier.key_hash = rank.index() == 3 ? 1 : 2;
      EXPECT_THROW(rank.group->run(barrier), Mismatch);
    }
    barrier.key_hash = 7;
    rank.group->run(barrier);
  });
}

// After a loss MPI keeps the memory of its messages. That memory belongs to the stream; the caller's is free at once.
TEST(MpiTransport, AfterALossMpiHoldsNoMemoryOfTheCaller) {
  const auto mpi = make_fake_mpi({.size = 2});
  const std::string addr = free_address();
  std::latch aborted(1);
  std::vector<std::function<void()>> functions;
  for (int index = 0; index < 2; ++index) {
    functions.push_back([&, index] {
      Config config = config_of(index, 2, addr);
      config.backend = "mpi";
      play_mpi_rank(mpi, index);
      const Links links = connect_tcp(config, 0, make_tcp_exchange(config, 0), &fake_mpi_api());
      if (index == 1) return aborted.wait();
      auto out = std::make_unique<MpiBytes>(1'000'000, std::byte{5});
      const Transport::Op op = links.transport->post_send(1, {}, *out);
      EXPECT_THROW(links.transport->wait({&op, 1}, soon(20)), PeerLost);
      out.reset();
      aborted.count_down();
    });
  }
  run_threads(functions);
  EXPECT_GT(open_requests(*mpi), 0u);
  EXPECT_THAT(take_given_up(), HasSubstr("still waiting for rank 1"));

  play_mpi_rank(mpi, 1);
  MpiComm comm = nullptr;
  MpiRequest request = nullptr;
  fake_mpi_api().duplicate(&comm, &request);
  MpiBytes late(132 << 10);
  fake_mpi_api().receive(comm, 0, late.data(), static_cast<int>(late.size()), &request);
  EXPECT_EQ(late.back(), std::byte{5});
}

}  // namespace
}  // namespace horo::test
