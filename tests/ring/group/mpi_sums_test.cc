// Sums that MPI computes, over an MPI of threads: which they are, that they are the same numbers, and how they end.
// Open MPI itself is in tests/python/test_mpi.py.

#include "ring/group/mpi_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <stdexcept>

#include "horo/base/error.h"
#include "ring/links.h"
#include "tests/ring/mpi/fake_mpi.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using testing::HasSubstr;

using SumBytes = std::vector<std::byte>;

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

struct SumRank {
  const Config& config;
  const Links& links;
  Transport& transport;
  std::unique_ptr<Group> group;
  Counters& counters;
};

// Ranks over that MPI, which wish for its sums. What each threw.
std::vector<std::exception_ptr> sum_over(const FakeMpiOptions& options, const std::shared_ptr<FakeMpi>& mpi,
                                         const std::function<void(SumRank&)>& function) {
  const std::string addr = free_address();
  std::vector<std::function<void()>> functions;
  for (int index = 0; index < options.size; ++index) {
    functions.push_back([&, index] {
      Config config = config_of(index, options.size, addr);
      config.backend = "mpi";
      config.algorithms = "all_reduce=mpi";
      play_mpi_rank(mpi, index);
      const Links links = connect_tcp(config, 0, make_tcp_exchange(config, 0), &fake_mpi_api());
      Counters counters;
      SumRank rank{config, links, *links.transport,
                   make_host_group(links, {first_ranks(options.size), 0}, config, counters), counters};
      try {
        function(rank);
      } catch (const PeerLost& lost) {
        links.transport->abort(lost.origin(), lost.what());
        throw;
      }
    });
  }
  return run_threads(functions);
}

void sum_well_over(int size, const std::function<void(SumRank&)>& function) {
  const FakeMpiOptions options{.size = size};
  const auto mpi = make_fake_mpi(options);
  take_given_up();
  for (const auto& error : sum_over(options, mpi, function)) EXPECT_EQ(message_of(error), "");
  EXPECT_EQ(open_requests(*mpi), 0u);
  EXPECT_EQ(take_given_up(), "");
}

Collective sum_of(SumBytes& data, DType dtype, int size) {
  Collective c;
  c.dtype = dtype;
  c.order = Order::kFast;
  c.channel = MpiSums::kChannel;
  c.in = c.out = {data.data(), data.size()};
  c.counts = {data.size() / size_of(dtype)};
  c.contributors.resize(static_cast<std::size_t>(size));
  std::iota(c.contributors.begin(), c.contributors.end(), 0);
  c.deadline = soon();
  c.what = "gradient fc.weight";
  return c;
}

// Small whole numbers, of which every order of summation gives the same bits.
SumBytes whole_numbers_of(DType dtype, int rank, std::size_t count) {
  SumBytes bytes(count * size_of(dtype));
  std::vector<std::int64_t> whole(count);
  for (std::size_t i = 0; i < count; ++i)
    whole[i] = static_cast<std::int64_t>((i * 7 + static_cast<std::size_t>(rank)) % 5 + 1);
  const auto put = [&]<class T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      const T value = static_cast<T>(whole[i]);
      std::memcpy(bytes.data() + i * size_of(dtype), &value, sizeof(value));
    }
  };
  if (dtype == DType::kFloat32 || dtype == DType::kComplex64) put(float{});
  if (dtype == DType::kFloat64 || dtype == DType::kComplex128) put(double{});
  if (is_integer(dtype) && size_of(dtype) == 1) put(std::int8_t{});
  if (is_integer(dtype) && size_of(dtype) == 2) put(std::int16_t{});
  if (is_integer(dtype) && size_of(dtype) == 4) put(std::int32_t{});
  if (is_integer(dtype) && size_of(dtype) == 8) put(std::int64_t{});
  return bytes;
}

const std::vector<DType> kNumbers = {DType::kFloat32, DType::kFloat64, DType::kComplex64, DType::kComplex128,
                                     DType::kInt8,    DType::kUint8,   DType::kInt16,     DType::kUint16,
                                     DType::kInt32,   DType::kUint32,  DType::kInt64,     DType::kUint64};

TEST(MpiSums, EveryTypeAndOperationIsWhatItIsWithoutMpi) {
  sum_well_over(3, [](SumRank& rank) {
    std::uint64_t plan = 0;
    for (const DType dtype : kNumbers) {
      for (int number = 0; number < 9; ++number) {
        const auto op = reduce_op_from(number);
        if (!op || !supports(dtype, *op)) continue;
        SumBytes by_mpi = whole_numbers_of(dtype, rank.group->rank(), 1000), by_us = by_mpi;
        Collective c = sum_of(by_mpi, dtype, 3), canonical = sum_of(by_us, dtype, 3);
        canonical.order = Order::kCanonical;
        for (Collective* one : {&c, &canonical}) {
          one->op = *op;
          one->plan = ++plan;
          one->prescale = 2;
          one->postscale = 3;
          one->divisor = 3;
          rank.group->run(*one);
        }
        EXPECT_EQ(by_mpi, by_us) << name_of(dtype) << " " << name_of(*op);
      }
    }
  });
}

TEST(MpiSums, ALongTensorIsCutAndTheLastPartIsWhole) {
  sum_well_over(2, [](SumRank& rank) {
    const SumBytes mine = whole_numbers_of(DType::kFloat32, rank.group->rank(), 1'000'003);
    SumBytes in_place = mine, apart = mine, out(mine.size());
    Collective c = sum_of(in_place, DType::kFloat32, 2);
    rank.group->run(c);
    Collective other = sum_of(apart, DType::kFloat32, 2);
    other.out = {out.data(), out.size()};
    other.plan = 1;
    rank.group->run(other);
    EXPECT_EQ(out, in_place);
    EXPECT_EQ(apart, mine);
    float last = 0;
    std::memcpy(&last, out.data() + out.size() - 4, 4);
    EXPECT_EQ(last, 5 + 1);  // of whole_numbers_of()
    SumBytes none;
    Collective empty = sum_of(none, DType::kFloat32, 2);
    empty.plan = 2;
    rank.group->run(empty);
  });
}

bool goes_by_mpi(SumRank& rank, const Collective& c) {
  return rank.group->algorithm(c) == kByMpi;
}

TEST(MpiSums, TakenIsWhatMpiAddsUpAsHoroDoes) {
  sum_well_over(2, [](SumRank& rank) {
    SumBytes data(64);
    const auto takes = [&](DType dtype, ReduceOp op) {
      Collective c = sum_of(data, dtype, 2);
      c.op = op;
      return goes_by_mpi(rank, c);
    };
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kComplex64, DType::kInt32, DType::kUint64}) {
      EXPECT_TRUE(takes(dtype, ReduceOp::kSum)) << name_of(dtype);
      EXPECT_TRUE(takes(dtype, ReduceOp::kProduct)) << name_of(dtype);
    }
    for (const DType dtype : {DType::kInt8, DType::kUint16, DType::kFloat16, DType::kBFloat16, DType::kBool}) {
      EXPECT_FALSE(takes(dtype, ReduceOp::kSum)) << name_of(dtype);  // they saturate, or there are none
    }
    EXPECT_TRUE(takes(DType::kInt8, ReduceOp::kMax));
    EXPECT_FALSE(takes(DType::kFloat32, ReduceOp::kMax));  // a NaN may be lost
  });
}

TEST(MpiSums, TakenIsWhatIsOfTheWorldAndItsLaneInAnyOrder) {
  sum_well_over(2, [](SumRank& rank) {
    SumBytes data(64);
    const Collective c = sum_of(data, DType::kFloat32, 2);
    EXPECT_TRUE(goes_by_mpi(rank, c));
    Collective other = c;
    other.order = Order::kCanonical;
    EXPECT_FALSE(goes_by_mpi(rank, other));
    other = c;
    other.contributors = {0, kAbsent};
    EXPECT_FALSE(goes_by_mpi(rank, other));
    other = c;
    other.channel = MpiSums::kChannel + 1;
    EXPECT_FALSE(goes_by_mpi(rank, other));
    const auto set = make_host_group(rank.links, {{0, 1}, 4}, rank.config, rank.counters);
    EXPECT_NE(set->algorithm(c), kByMpi);
    Config free = rank.config;
    free.algorithms.clear();
    const auto unasked = make_host_group(rank.links, {{0, 1}, 0}, free, rank.counters);
    EXPECT_NE(unasked->algorithm(c), kByMpi);
  });
}

TEST(MpiSums, ADifferenceIsAMismatchOnEveryMemberAndMpiHearsNothingOfIt) {
  const FakeMpiOptions options{.size = 4};
  const auto mpi = make_fake_mpi(options);
  const auto errors = sum_over(options, mpi, [](SumRank& rank) {
    const bool is_odd = rank.group->rank() == 3;
    SumBytes data(4096), shorter(4000);
    Collective c = sum_of(data, DType::kFloat32, 4);
    c.key_hash = is_odd ? 1 : 2;
    EXPECT_THROW(rank.group->run(c), Mismatch);
    Collective other = sum_of(is_odd ? shorter : data, DType::kFloat32, 4);
    other.plan = 1;
    EXPECT_THROW(rank.group->run(other), Mismatch);
    Collective same = sum_of(data, DType::kFloat32, 4);
    same.plan = 2;
    rank.group->run(same);
  });
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
  EXPECT_EQ(sums_of(*mpi), 1);
}

// The caller's memory is gone when he hears of it; MPI still has what was given to it.
TEST(MpiSums, ARankThatFailsInTheMiddleIsNamedAndNobodysMemoryIsMpis) {
  const FakeMpiOptions options{.size = 3, .fails_sums = 2};
  const auto mpi = make_fake_mpi(options);
  take_given_up();
  const auto errors = sum_over(options, mpi, [](SumRank& rank) {
    auto data = std::make_unique<SumBytes>(2 << 20);
    rank.group->run(sum_of(*data, DType::kFloat32, 3));
  });
  for (const std::size_t survivor : {0u, 1u}) {
    EXPECT_EQ(origin_of(errors[survivor]), 2);
    EXPECT_THAT(message_of(errors[survivor]), HasSubstr("rank 2 failed in all_reduce of gradient fc.weight: MPI_Iall"));
  }
  EXPECT_THAT(message_of(errors[2]), HasSubstr("MPI_Iallreduce: too many messages"));
  EXPECT_EQ(open_requests(*mpi), 12u);
  EXPECT_NE(take_given_up(), "");
}

TEST(MpiSums, AnMpiThatNeverEndsIsNotWaitedForBeyondTheDeadline) {
  const FakeMpiOptions options{.size = 2, .ends_sums = false};
  const auto mpi = make_fake_mpi(options);
  const auto errors = sum_over(options, mpi, [](SumRank& rank) {
    SumBytes data(4096);
    Collective c = sum_of(data, DType::kFloat32, 2);
    c.deadline = soon(300);
    rank.group->run(c);
  });
  for (const auto& error : errors) {
    EXPECT_EQ(origin_of(error), -1);
    EXPECT_THAT(message_of(error), HasSubstr("MPI_Iallreduce on channel 1, plan 0 has not ended at the deadline"));
  }
  EXPECT_THAT(take_given_up(), HasSubstr("has not ended at the deadline"));
}

// Wrapping the interface: as if the others had left.
class LeftTransport final : public Transport {
 public:
  explicit LeftTransport(Transport& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Op post_send(int peer, const Tag& tag, std::span<const std::byte> out) override {
    return inner_.post_send(peer, tag, out);
  }
  Op post_recv(int peer, const Tag& tag, std::span<std::byte> in) override { return inner_.post_recv(peer, tag, in); }
  void wait(std::span<const Op> ops, TimePoint deadline) override { inner_.wait(ops, deadline); }
  void abort(int origin, const std::string& reason) noexcept override { inner_.abort(origin, reason); }
  bool has_left(int peer) override { return inner_.has_left(peer), true; }
  Traffic traffic(std::uint32_t channel) const override { return inner_.traffic(channel); }
  std::uint64_t kernel_bytes_sent_to(int peer) const override { return inner_.kernel_bytes_sent_to(peer); }

 private:
  Transport& inner_;
};

TEST(MpiSums, AMemberThatLeavesInTheMiddleIsNamed) {
  const FakeMpiOptions options{.size = 2, .ends_sums = false};
  const auto mpi = make_fake_mpi(options);
  const auto errors = sum_over(options, mpi, [](SumRank& rank) {
    LeftTransport left(rank.transport);
    const auto group =
        make_host_group(left, {{0, 1}, 0, {}, usual_costs(), nullptr, rank.links.mpi}, rank.config, rank.counters);
    SumBytes data(4096);
    group->run(sum_of(data, DType::kFloat32, 2));
  });
  for (const auto& error : errors) EXPECT_THAT(message_of(error), HasSubstr("left while MPI_Iallreduce was under way"));
  EXPECT_NE(take_given_up(), "");
}

}  // namespace
}  // namespace horo::test
