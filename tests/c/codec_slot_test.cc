// Codecs that callers register through the C ABI, written with its header and library alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "bindings/c/horo_c.h"

namespace {

constexpr std::int32_t kTimeoutMs = 60'000;

// Tenths from -12.7 to 12.7 in a byte; -128 stands for what is not finite.
struct Tenths {
  std::int32_t status = 0;  // what encode returns
};

std::uint64_t wire_bytes(void* /*user*/, std::uint64_t count) {
  return count;
}

std::int32_t encode(void* user, const float* x, float* /*residual*/, void* wire, std::uint64_t count) {
  const auto* tenths = static_cast<Tenths*>(user);
  auto* bytes = static_cast<std::int8_t*>(wire);
  for (std::uint64_t i = 0; i < count; ++i) {
    const float value = std::fmax(-127.0f, std::fmin(127.0f, std::nearbyint(10.0f * x[i])));
    bytes[i] = static_cast<std::int8_t>(std::isfinite(x[i]) ? value : -128.0f);
  }
  return tenths->status;
}

std::int32_t decode(void* /*user*/, const void* wire, float* out, std::uint64_t count) {
  const auto* bytes = static_cast<const std::int8_t*>(wire);
  for (std::uint64_t i = 0; i < count; ++i) out[i] = bytes[i] == -128 ? NAN : static_cast<float>(bytes[i]) / 10.0f;
  return 0;
}

horo_codec codec_of(Tenths& tenths) {
  horo_codec codec = {};
  codec.struct_bytes = sizeof codec;
  codec.block = 1;
  codec.wire_bytes = wire_bytes;
  codec.encode = encode;
  codec.decode = decode;
  codec.user = &tenths;
  return codec;
}

std::string error() {
  return horo_error_text(nullptr);
}

// A world of one rank.
class World {
 public:
  World() : session_(horo_init(nullptr, 0)) { EXPECT_NE(session_, nullptr) << error(); }
  ~World() { horo_free(session_); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  horo_session* get() { return session_; }

  // "" or the error.
  std::string all_reduce(const char* codec, std::vector<float>& values) {
    const auto count = static_cast<std::int64_t>(values.size());
    horo_tensor_spec spec = {};
    spec.struct_bytes = sizeof spec;
    spec.op = HORO_SUM;
    spec.dtype = HORO_FLOAT32;
    spec.prescale = spec.postscale = 1;
    spec.name = "gradient";
    spec.shape = &count;
    spec.dims = 1;
    spec.codec = codec;
    const std::int64_t key = horo_declare(session_, &spec);
    const std::int64_t work = key < 0 ? key : horo_submit(session_, key, values.data(), values.data());
    if (work < 0) return error();
    return horo_wait(session_, &work, 1, kTimeoutMs) == HORO_OK ? "" : error();
  }

 private:
  horo_session* session_;
};

TEST(CodecSlot, ARegisteredCodecRuns) {
  World world;
  Tenths tenths;
  const horo_codec codec = codec_of(tenths);
  ASSERT_EQ(horo_register_codec(world.get(), "tenths", &codec), HORO_OK) << error();
  std::vector<float> values{0.11f, -3.04f, 100.0f};
  EXPECT_EQ(world.all_reduce("tenths", values), "");
  EXPECT_EQ(values, (std::vector<float>{0.1f, -3.0f, 12.7f}));
}

TEST(CodecSlot, AFailingCodecIsNamedWithItsStatus) {
  World world;
  Tenths tenths{.status = 7};
  const horo_codec codec = codec_of(tenths);
  ASSERT_EQ(horo_register_codec(world.get(), "tenths", &codec), HORO_OK) << error();
  std::vector<float> values(10, 1.0f);
  EXPECT_THAT(world.all_reduce("tenths", values), testing::HasSubstr("encode of 10 elements returned 7, expected 0"));
}

TEST(CodecSlot, AnInvalidCodecIsRefused) {
  World world;
  Tenths tenths;
  horo_codec codec = codec_of(tenths);
  EXPECT_EQ(horo_register_codec(world.get(), "int8", &codec), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(error(), testing::HasSubstr("codec 'int8' exists already"));
  EXPECT_EQ(horo_register_codec(world.get(), "", &codec), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(horo_register_codec(world.get(), nullptr, &codec), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(error(), testing::HasSubstr("a codec's name has 1 to 64 bytes"));
  codec.block = 0;
  EXPECT_EQ(horo_register_codec(world.get(), "tenths", &codec), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(error(), testing::HasSubstr("horo_codec.block is 0, expected 1 to 1048576 elements"));
  codec.block = 4;
  codec.wire_bytes = [](void*, std::uint64_t count) { return count > 4 ? count + 1 : count; };
  EXPECT_EQ(horo_register_codec(world.get(), "tenths", &codec), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(error(), testing::HasSubstr("is 0 for no elements and 13 for 12, expected 0 and, for blocks of 4, 12"));
  codec.decode = nullptr;
  EXPECT_EQ(horo_register_codec(world.get(), "tenths", &codec), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(error(), testing::HasSubstr("is a null pointer"));
}

}  // namespace
