// The built-in codecs against the contract of ring/codec/codec.h, the conformance check against planted mistakes, and
// the codec table.
#include "tools/horo/conformance/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>

#include "ring/codec/codec_table.h"
#include "tests/base/bytes.h"

namespace horo::test {
namespace {

using Floats = std::vector<float>;

std::string coded(const Codec& codec, const Floats& x) {
  std::vector<std::byte> wire(codec.wire_bytes(x.size()));
  Floats residual(x.size(), 0.0f);
  codec.encode(x.data(), codec.stateful() ? residual.data() : nullptr, wire.data(), x.size());
  return to_hex(wire);
}

Floats decoded(const Codec& codec, const std::string& hex, std::size_t count) {
  Floats out(count);
  codec.decode(from_hex(hex).data(), out.data(), count);
  return out;
}

TEST(Codec, EveryBuiltInOneConforms) {
  for (const auto& codec : built_in_codecs()) {
    EXPECT_THAT(tools::faults_of(*codec, tools::claim_of_built_in(codec->name())), testing::IsEmpty()) << codec->name();
  }
}

// The bytes are the same in all builds, because ranks of two builds may run in one job.
TEST(Codec, EncodesToTheseBytes) {
  const CodecTable table;
  const Floats x{1.0f, -0.5f, 0.0f, 3.0f};
  EXPECT_EQ(coded(table.get("fp16"), x), "003c00b800000042");
  EXPECT_EQ(coded(table.get("bf16"), x), "803f00bf00004040");
  EXPECT_EQ(coded(table.get("fp8"), x),
            "78"
            "70e8007c");  // 2^(0x78 - 127) * {128, -64, 0, 384}
  EXPECT_EQ(coded(table.get("int8"), x),
            "0683c13c"
            "2aeb007f");  // 3/127 * {42, -21, 0, 127}
}

TEST(Codec, AnInfinityDoesNotEraseItsNeighbours) {
  const CodecTable table;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const char* name : {"fp8", "int8"}) {
    const Codec& codec = table.get(name);
    const Floats back = decoded(codec, coded(codec, {infinity, 1.0f, -infinity}), 3);
    EXPECT_TRUE(std::isnan(back[0]) && std::isnan(back[2])) << name;
    EXPECT_EQ(back[1], 1.0f) << name;
  }
  const Codec& half = table.get("fp16");
  EXPECT_EQ(decoded(half, coded(half, {infinity, 1.0f, 70'000.0f}), 3), (Floats{infinity, 1.0f, infinity}));
}

TEST(Codec, ScalesCoverTheLeastToTheGreatestNumber) {
  const CodecTable table;
  for (const char* name : {"fp8", "int8"}) {
    const Codec& codec = table.get(name);
    for (const float largest : {0x1p-126f, 0x1p-100f, 1.0f, 0x1p100f, FLT_MAX, -FLT_MAX}) {
      const float back = decoded(codec, coded(codec, {largest}), 1)[0];
      EXPECT_NEAR(static_cast<double>(back / largest), 1.0, 0x1p-4) << name << ' ' << largest;
    }
    EXPECT_EQ(decoded(codec, coded(codec, {0x1p-149f}), 1)[0], 0.0f) << name;
  }
}

// ---- the conformance check

// int8, with one mistake.
class Mistaken final : public Codec {
 public:
  using Floats = std::span<float>;
  struct Mistake {
    const char* finding;  // part of the expected finding
    std::function<std::size_t(std::size_t count, std::size_t right)> wire_bytes = {};
    std::function<void(const float* x, Floats residual, std::span<std::byte> wire)> encoded = {};
    std::function<void(const std::byte* wire, Floats out)> decoded = {};
  };

  explicit Mistaken(Mistake mistake) : mistake_(std::move(mistake)) {}
  const std::string& name() const override { return right_.name(); }
  std::size_t block() const override { return right_.block(); }
  bool stateful() const override { return true; }
  std::size_t wire_bytes(std::size_t count) const override {
    const std::size_t right = right_.wire_bytes(count);
    return mistake_.wire_bytes ? mistake_.wire_bytes(count, right) : right;
  }
  void encode(const float* x, float* residual, std::byte* wire, std::size_t count) const override {
    right_.encode(x, residual, wire, count);
    if (mistake_.encoded && count > 0) mistake_.encoded(x, {residual, count}, {wire, right_.wire_bytes(count)});
  }
  void decode(const std::byte* wire, float* out, std::size_t count) const override {
    right_.decode(wire, out, count);
    if (mistake_.decoded && count > 0) mistake_.decoded(wire, {out, count});
  }

 private:
  const CodecTable table_;
  const Codec& right_ = table_.get("int8");
  const Mistake mistake_;
};

constexpr std::size_t kBlock = 256;
constexpr std::size_t kScaleBytes = 4;

std::vector<Mistaken::Mistake> mistakes_in_encoding() {
  return {
      {.finding = "wire_bytes(0) is 1", .wire_bytes = [](auto, auto right) { return right + 1; }},
      {.finding = "that of its blocks",
       .wire_bytes = [](auto count, auto right) { return right + (count > kBlock ? 1 : 0); }},
      {.finding = "wrote outside of its wire_bytes()",
       .encoded = [](auto, auto, auto wire) { *(wire.data() + wire.size()) = {}; }},
      {.finding = "wrote outside of its wire_bytes()",
       .encoded = [](auto, auto, auto wire) { *(wire.data() - 1) = {}; }},
      {.finding = "wrote outside of their residual",
       .encoded = [](auto, auto residual, auto) { *(residual.data() + residual.size()) = 0; }},
      {.finding = "changed its input", .encoded = [](auto x, auto, auto) { *const_cast<float*>(x) += 1.0f; }},
      {.finding = "not repeatable",
       .encoded =
           [](auto, auto, auto wire) {
             wire.back() ^= static_cast<std::byte>(reinterpret_cast<std::uintptr_t>(wire.data()) & 1);
           }},
      {.finding = "not repeatable",
       .encoded = [calls = std::make_shared<int>(0)](auto, auto, auto wire) { wire.back() = std::byte(++*calls); }},
      {.finding = "not the concatenation of its blocks",
       .encoded =
           [](auto, auto, auto wire) {
             if (wire.size() > 2 * kBlock) wire.back() ^= std::byte{1};
           }},
      {.finding = "expected an error of at most",
       .encoded = [](auto, auto, auto wire) { wire[kScaleBytes] = std::byte{3}; }},
      {.finding = "nan came back as 0",
       .encoded =
           [](auto x, auto, auto wire) {
             if (std::isnan(x[0])) wire[kScaleBytes] = {};
           }},
      {.finding = "inf came back as",
       .encoded =
           [](auto x, auto, auto wire) {
             if (std::isinf(x[0])) wire[kScaleBytes] = std::byte{127};
           }},
      {.finding = "left a residual of",
       .encoded =
           [](auto x, auto residual, auto) {
             if (!std::isfinite(x[0])) residual[0] = x[0];
           }},
      {.finding = "to add up",
       .encoded = [](auto, auto residual, auto) { std::fill(residual.begin(), residual.end(), 0.0f); }},
      {.finding = "to add up",
       .encoded =
           [](auto, auto residual, auto) {
             for (float& r : residual) r = -r;
           }},
      {.finding = "it threw: enough", .encoded = [](auto, auto, auto) { throw std::runtime_error("enough"); }},
  };
}

std::vector<Mistaken::Mistake> mistakes_in_decoding() {
  return {
      {.finding = "expected an error of at most",
       .decoded =
           [](auto, auto out) {
             for (float& value : out) value *= 1.01f;
           }},
      {.finding = "zeros came back as",
       .decoded =
           [](auto, auto out) {
             for (float& value : out) value += 0x1p-140f;
           }},
      {.finding = "a block suffers",
       .decoded =
           [](auto, auto out) {
             if (out.size() > kBlock && std::isnan(out[0])) out[kBlock] = out[0];
           }},
      {.finding = "decode() of 1 elements wrote outside",
       .decoded = [](auto, auto out) { *(out.data() + out.size()) = 0; }},
      {.finding = "decode() of noise",
       .decoded =
           [n = std::make_shared<int>(0)](auto, auto out) {
             if (std::fabs(out[0]) > 1e30f) out[0] = float(++*n);
           }},
      {.finding = "decode() changed the bytes",
       .decoded = [](auto wire, auto) { *const_cast<std::byte*>(wire) ^= std::byte{1}; }},
  };
}

void expect_found(const std::vector<Mistaken::Mistake>& mistakes) {
  for (const Mistaken::Mistake& mistake : mistakes) {
    EXPECT_THAT(tools::faults_of(Mistaken(mistake), tools::claim_of_built_in("int8")),
                testing::Contains(testing::HasSubstr(mistake.finding)));
  }
}

TEST(CodecCheck, FindsEveryPlantedMistake) {
  expect_found(mistakes_in_encoding());
  expect_found(mistakes_in_decoding());
  EXPECT_THAT(tools::faults_of(Mistaken({.finding = "nothing"}), tools::claim_of_built_in("int8")), testing::IsEmpty());
}

TEST(CodecCheck, FindsAnErrorBoundThatIsTooSmall) {
  for (const auto& codec : built_in_codecs()) {
    tools::CodecClaim claim = tools::claim_of_built_in(codec->name());
    claim.relative *= 0.9, claim.of_block *= 0.9;
    EXPECT_THAT(tools::faults_of(*codec, claim), testing::Contains(testing::HasSubstr("expected an error of at most")))
        << codec->name();
  }
}

// ---- the codec table

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(CodecTable, HoldsTheBuiltInCodecsAndListsThem) {
  const CodecTable table;
  EXPECT_EQ(table.get("fp8").name(), "fp8");
  EXPECT_THAT(refusal([&] { table.get("fp4"); }),
              testing::HasSubstr("there is no codec 'fp4', expected one of 'bf16', 'fp16', 'fp8', 'int8'"));
}

TEST(CodecTable, RefusesANameInUseAndInconsistentSizes) {
  CodecTable table;
  EXPECT_THAT(refusal([&] { table.add(std::make_unique<Mistaken>(Mistaken::Mistake{"a name that is taken"})); }),
              testing::HasSubstr("codec 'int8' exists already"));
  const auto wrong = [](std::size_t, std::size_t right) { return right + 1; };
  EXPECT_THAT(refusal([&] {
                table.add(std::make_unique<Mistaken>(Mistaken::Mistake{"a size", wrong}));
              }),
              testing::HasSubstr("no elements take 1 bytes"));
}

TEST(Codec, IsSupportedForSumsAndAveragesOfFloats) {
  EXPECT_TRUE(can_be_coded(CollectiveKind::kAllReduce, ReduceOp::kAverage, DType::kBFloat16));
  EXPECT_FALSE(can_be_coded(CollectiveKind::kAllReduce, ReduceOp::kMax, DType::kFloat32));
  EXPECT_FALSE(can_be_coded(CollectiveKind::kAllReduce, ReduceOp::kSum, DType::kInt32));
  EXPECT_FALSE(can_be_coded(CollectiveKind::kReduceScatter, ReduceOp::kSum, DType::kFloat32));
}

}  // namespace
}  // namespace horo::test
