// all_reduce with a codec on the wire, between ranks that are threads.
#include "ring/group/coded_all_reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>

#include "horo/base/error.h"
#include "tests/effort.h"
#include "tests/ring/codec/coded.h"

namespace horo::test {
namespace {

void expect_same_bits_and_near(int size, std::size_t count, const Codec& codec, Wire wire = Wire::kInProcess) {
  Results<float> results(size);
  run_ranks_well({size, wire, {}}, [&](Rank& rank) {
    results.put(rank.index(), all_reduced(rank, coded_collective(rank), codec, values_of(rank.index(), count)));
  });
  float largest = 0;
  for (int rank = 0; rank < size; ++rank) {
    for (const float value : values_of(rank, count)) largest = std::max(largest, std::fabs(value));
  }
  EXPECT_LE(rms_of_difference(results.only(), exact_average(size, count)), 0x1p-3f * largest)
      << codec.name() << ", " << count << " elements, " << size << " ranks";
}

TEST(CodedAllReduce, EveryRankEndsWithTheSameBits) {
  for (const auto& codec : built_in_codecs()) {
    for (const int size : {1, 2, 3, 5, 8}) {
      for (const std::size_t count : {0, 1, 2, 31, 255, 257, 1000, 20'000}) {
        expect_same_bits_and_near(size, count, *codec);
      }
    }
    expect_same_bits_and_near(4, 50'000, *codec, Wire::kTcp);
  }
}

// Each value is encoded twice, as an input and as part of the sum. The two errors are independent.
double expected_rms(const Codec& codec, int size, std::size_t count) {
  const auto rms_of_coding = [&](const Floats& values) {
    std::vector<std::byte> wire(codec.wire_bytes(count));
    Floats residual(count, 0.0f), back(count);
    codec.encode(values.data(), codec.stateful() ? residual.data() : nullptr, wire.data(), count);
    codec.decode(wire.data(), back.data(), count);
    return rms_of_difference(back, Doubles(values.begin(), values.end()));
  };
  double squares = 0;
  for (int rank = 0; rank < size; ++rank) squares += std::pow(rms_of_coding(values_of(rank, count)) / size, 2);
  const Doubles mean = exact_average(size, count);
  return std::sqrt(squares + std::pow(rms_of_coding({mean.begin(), mean.end()}), 2));
}

TEST(CodedAllReduce, TheErrorIsThatOfOneCodingOfEachInputAndOneOfTheSum) {
  constexpr std::size_t kCount = 50'000;
  for (const auto& codec : built_in_codecs()) {
    for (int size = 2; size <= (kSanitized ? 3 : 8); ++size) {
      Results<float> results(size);
      run_ranks_well({size, Wire::kInProcess, {}}, [&](Rank& rank) {
        results.put(rank.index(), all_reduced(rank, coded_collective(rank), *codec, values_of(rank.index(), kCount)));
      });
      const double expected = expected_rms(*codec, size, kCount);
      const double rms = rms_of_difference(results.only(), exact_average(size, kCount));
      EXPECT_GT(rms, 0.9 * expected) << codec->name() << ", " << size << " ranks";
      EXPECT_LT(rms, 1.08 * expected) << codec->name() << ", " << size << " ranks";
      RecordProperty(codec->name() + "_rms_of_" + std::to_string(size), std::to_string(rms));
    }
  }
}

// ---- members

TEST(CodedAllReduce, AnAbsentMemberAddsNothingAndGetsTheResult) {
  constexpr int kSize = 4;
  for (const auto& codec : built_in_codecs()) {
    Results<float> with_absent(kSize), zeros(kSize);
    run_ranks_well({kSize, Wire::kInProcess, {}}, [&](Rank& rank) {
      Collective c = coded_collective(rank);
      const Floats in = rank.index() == 2 ? Floats(3000, 0.0f) : values_of(rank.index(), 3000);
      zeros.put(rank.index(), all_reduced(rank, c, *codec, in));
      c.contributors[2] = kAbsent;
      c.plan += 2;
      with_absent.put(rank.index(), all_reduced(rank, c, *codec, values_of(rank.index(), 3000)));
    });
    EXPECT_EQ(with_absent.only(), zeros.only()) << codec->name();
  }
}

TEST(CodedAllReduce, AnotherCodecOnAnotherRankIsAMismatch) {
  const CodecTable table;
  run_ranks_well({2, Wire::kInProcess, {}}, [&](Rank& rank) {
    const Codec& codec = table.get(rank.index() == 0 ? "int8" : "fp16");
    EXPECT_THROW(all_reduced(rank, coded_collective(rank), codec, Floats(1000, 1.0f)), Mismatch);
  });
}

// ---- values

TEST(CodedAllReduce, NanAndInfinityReachEveryRank) {
  for (const auto& codec : built_in_codecs()) {
    Results<float> results(3);
    run_ranks_well({3, Wire::kInProcess, {}}, [&](Rank& rank) {
      Floats in(600, 1.0f);
      if (rank.index() == 1) in[300] = std::numeric_limits<float>::quiet_NaN();
      if (rank.index() == 2) in[599] = std::numeric_limits<float>::infinity();
      results.put(rank.index(), all_reduced(rank, coded_collective(rank), *codec, in));
    });
    const Floats& ends = results.only();
    EXPECT_TRUE(std::isnan(ends[300]) && !std::isfinite(ends[599])) << codec->name();
    EXPECT_EQ(std::count_if(ends.begin(), ends.end(), [](float v) { return !std::isfinite(v); }), 2) << codec->name();
  }
}

TEST(CodedAllReduce, ThePrescaleComesBeforeTheCodec) {
  const CodecTable table;
  run_ranks_well({2, Wire::kInProcess, {}}, [&](Rank& rank) {
    Collective c = coded_collective(rank, ReduceOp::kSum);
    c.prescale = 0.25;
    EXPECT_EQ(all_reduced(rank, c, table.get("fp16"), {0x1p16f}), Floats{0x1p15f}) << "2^16 is too large for a float16";
  });
}

template <class T>
std::vector<T> all_reduced_as(DType dtype, int size, const std::function<T(double)>& convert) {
  const CodecTable table;
  Results<T> results(size);
  run_ranks_well({size, Wire::kInProcess, {}}, [&](Rank& rank) {
    std::vector<T> in, out(600);
    for (std::size_t i = 0; i < out.size(); ++i) in.push_back(convert(static_cast<double>(i % 50) + rank.index()));
    Collective c = coded_collective(rank, ReduceOp::kSum);
    c.dtype = dtype;
    CodedScratch scratch;
    const CodedTensor tensor = coded_tensor(in, out);
    run_coded(*rank.group, c, table.get("fp16"), {&tensor, 1}, scratch);
    results.put(rank.index(), out);
  });
  return results.only();
}

TEST(CodedAllReduce, EveryFloatTypeGoesThroughFloat32) {
  const auto bits_of_half = [](double v) {
    std::byte wire[2];
    const auto value = static_cast<float>(v);
    std::uint16_t bits;
    CodecTable().get("fp16").encode(&value, nullptr, wire, 1);
    std::memcpy(&bits, wire, 2);
    return bits;
  };
  const auto bits_of_bfloat = [](double v) { return std::uint16_t(std::bit_cast<std::uint32_t>(float(v)) >> 16); };
  const auto doubles = all_reduced_as<double>(DType::kFloat64, 3, [](double v) { return v; });
  const auto halves = all_reduced_as<std::uint16_t>(DType::kFloat16, 3, bits_of_half);
  const auto bfloats = all_reduced_as<std::uint16_t>(DType::kBFloat16, 3, bits_of_bfloat);
  for (std::size_t i = 0; i < 600; ++i) {
    const double sum = 3.0 * static_cast<double>(i % 50) + 3;  // small integers: exact in all of them
    EXPECT_EQ(doubles[i], sum);
    EXPECT_EQ(halves[i], bits_of_half(sum));
    EXPECT_EQ(bfloats[i], bits_of_bfloat(sum));
  }
}

TEST(CodedAllReduce, WorksInPlaceAndAtOddAddresses) {
  const CodecTable table;
  constexpr std::size_t kCount = 1000;
  run_ranks_well({3, Wire::kInProcess, {}}, [&](Rank& rank) {
    const Floats in = values_of(rank.index(), kCount);
    const Floats expected = all_reduced(rank, coded_collective(rank), table.get("fp8"), in);
    std::vector<std::byte> memory(4 * kCount + 1);
    std::memcpy(memory.data() + 1, in.data(), 4 * kCount);
    CodedScratch scratch;
    const CodedTensor tensor{memory.data() + 1, memory.data() + 1, kCount, hash64("t"), nullptr};
    run_coded(*rank.group, coded_collective(rank, ReduceOp::kAverage, 1), table.get("fp8"), {&tensor, 1}, scratch);
    EXPECT_EQ(std::memcmp(memory.data() + 1, expected.data(), 4 * kCount), 0);
  });
}

// ---- bytes and failures

TEST(CodedAllReduce, SendsTheCodedBytesTwiceExceptTheOwnPart) {
  constexpr std::size_t kCount = 1 << 20;
  for (const auto& codec : built_in_codecs()) {
    for (int size = 2; size <= (kSanitized ? 2 : 8); size += 3) {
      run_ranks_well({size, Wire::kInProcess, {}}, [&](Rank& rank) {
        all_reduced(rank, coded_collective(rank), *codec, Floats(kCount, 1.0f));
        const double expected = 2.0 * (size - 1) / size * static_cast<double>(codec->wire_bytes(kCount));
        const auto sent = static_cast<double>(rank.transport().traffic(0).bytes_sent);
        EXPECT_NEAR(sent / expected, 1.0, 0.005) << codec->name() << ", " << size << " ranks";
      });
    }
  }
}

TEST(CodedAllReduce, CollectivesThatCannotBeCodedAreRefused) {
  const CodecTable table;
  run_ranks_well({1, Wire::kInProcess, {}}, [&](Rank& rank) {
    Collective c = coded_collective(rank, ReduceOp::kMax);
    EXPECT_THROW(all_reduced(rank, c, table.get("int8"), {1.0f}), std::invalid_argument);
    c.op = ReduceOp::kSum;
    c.dtype = DType::kInt32;
    EXPECT_THROW(all_reduced(rank, c, table.get("int8"), {1.0f}), std::invalid_argument);
  });
}

}  // namespace
}  // namespace horo::test
