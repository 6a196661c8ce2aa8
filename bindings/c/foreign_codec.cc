#include "bindings/c/foreign_codec.h"

#include <stdexcept>
#include <utility>

namespace horo_c {
namespace {

class ForeignCodec final : public horo::Codec {
 public:
  ForeignCodec(std::string name, const horo_codec& codec) : name_(std::move(name)), codec_(codec) {}

  const std::string& name() const override { return name_; }
  std::size_t block() const override { return codec_.block; }
  // The sum over blocks by definition, so that blocks encoded one by one fill exactly the memory of the whole.
  std::size_t wire_bytes(std::size_t count) const override {
    const std::size_t rest = count % block();
    return count / block() * bytes_of(block()) + (rest > 0 ? bytes_of(rest) : 0);
  }
  bool stateful() const override { return (codec_.flags & HORO_CODEC_STATEFUL) != 0; }

  void encode(const float* x, float* residual, std::byte* wire, std::size_t count) const override {
    expect_ok("encode", count, codec_.encode(codec_.user, x, residual, wire, count));
  }

  void decode(const std::byte* wire, float* out, std::size_t count) const override {
    expect_ok("decode", count, codec_.decode(codec_.user, wire, out, count));
  }

 private:
  std::size_t bytes_of(std::size_t count) const { return codec_.wire_bytes(codec_.user, count); }
  static void expect_ok(const std::string& what, std::size_t count, std::int32_t status) {
    if (status == 0) return;
    throw std::runtime_error(what + " of " + std::to_string(count) + " elements returned " + std::to_string(status) +
                             ", expected 0");
  }

  const std::string name_;
  const horo_codec codec_;
};

void check_sizes(const horo_codec& codec) {
  if (codec.block == 0 || codec.block > horo::Codec::kMaxBlock) {
    throw std::invalid_argument("horo_codec.block is " + std::to_string(codec.block) + ", expected 1 to " +
                                std::to_string(horo::Codec::kMaxBlock) + " elements");
  }
  const auto bytes = [&](std::uint64_t count) { return codec.wire_bytes(codec.user, count); };
  for (const std::uint64_t rest : {std::uint64_t{0}, codec.block / 2, codec.block - 1}) {
    const std::uint64_t expected = 3 * bytes(codec.block) + (rest > 0 ? bytes(rest) : 0);
    const std::uint64_t count = 3 * codec.block + rest;
    if (bytes(count) == expected && bytes(0) == 0) continue;
    throw std::invalid_argument("horo_codec.wire_bytes is " + std::to_string(bytes(0)) + " for no elements and " +
                                std::to_string(bytes(count)) + " for " + std::to_string(count) +
                                ", expected 0 and, for blocks of " + std::to_string(codec.block) + ", " +
                                std::to_string(expected));
  }
}

}  // namespace

std::unique_ptr<horo::Codec> codec_from(const char* name, const horo_codec* codec) {
  if (codec == nullptr) throw std::invalid_argument("horo_codec is a null pointer");
  if (codec->struct_bytes < sizeof(horo_codec)) {
    throw std::invalid_argument("horo_codec.struct_bytes is " + std::to_string(codec->struct_bytes) +
                                ", this horo needs " + std::to_string(sizeof(horo_codec)));
  }
  if ((codec->flags & ~HORO_CODEC_STATEFUL) != 0) {
    throw std::invalid_argument("horo_codec.flags is " + std::to_string(codec->flags) +
                                ", expected HORO_CODEC_STATEFUL or 0");
  }
  if (!codec->wire_bytes || !codec->encode || !codec->decode) {
    throw std::invalid_argument("wire_bytes, encode or decode of horo_codec is a null pointer");
  }
  check_sizes(*codec);
  return std::make_unique<ForeignCodec>(name == nullptr ? "" : name, *codec);
}

}  // namespace horo_c
