// Codecs decode any bytes, and encode any values; a decoded value is as near as the codec claims, or not finite.
#include <cmath>
#include <cstring>
#include <vector>

#include "horo/base/check.h"
#include "tests/fuzz/targets.h"
#include "tools/horo/conformance/codec.h"

namespace horo {
namespace {

using Floats = std::vector<float>;

double largest_beside(const Floats& values, std::size_t i, std::size_t block) {
  double largest = 0;
  const std::size_t begin = i / block * block;
  for (std::size_t k = begin; k < std::min(values.size(), begin + block); ++k) {
    if (std::isfinite(values[k])) largest = std::max(largest, std::fabs(static_cast<double>(values[k])));
  }
  return largest;
}

void check_values(const Codec& codec, const Floats& values) {
  const tools::CodecClaim claim = tools::claim_of_built_in(codec.name());
  std::vector<std::byte> wire(codec.wire_bytes(values.size()) + 1);  // at an odd address
  Floats residual(values.size(), 0.0f), back(values.size());
  codec.encode(values.data(), codec.stateful() ? residual.data() : nullptr, wire.data() + 1, values.size());
  codec.decode(wire.data() + 1, back.data(), values.size());
  double beside = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % codec.block() == 0) beside = largest_beside(values, i, codec.block());
    const auto value = static_cast<double>(values[i]);
    HORO_CHECK(std::isfinite(residual[i]));
    HORO_CHECK(std::isfinite(value) || !std::isfinite(back[i]));
    if (!std::isfinite(value) || std::fabs(value) > claim.largest) continue;
    const double allowed = claim.relative * std::fabs(value) + claim.of_block * beside + claim.absolute;
    HORO_CHECK(std::fabs(static_cast<double>(back[i]) - value) <= allowed);
  }
}

// `count` values of noise: the bytes over and over again.
Floats decoded(const Codec& codec, std::span<const std::byte> bytes, std::size_t count) {
  std::vector<std::byte> wire(codec.wire_bytes(count));
  for (std::size_t i = 0; i < wire.size() && !bytes.empty(); ++i) wire[i] = bytes[i % bytes.size()];
  Floats values(count);
  codec.decode(wire.data(), values.data(), count);
  return values;
}

}  // namespace

// Every codec that is built in sees the input twice: as its own bytes, and as numbers.
bool fuzz_codecs(std::span<const std::byte> bytes) {
  static const auto codecs = built_in_codecs();
  FuzzInput input(bytes);
  const std::size_t count = input.below(8) == 0 ? input.below(300) : input.below(40);  // mostly less than a block
  Floats numbers(input.rest().size() / sizeof(float));
  if (!numbers.empty()) std::memcpy(numbers.data(), input.rest().data(), numbers.size() * sizeof(float));
  bool is_finite = true;
  for (const auto& codec : codecs) {
    const Floats values = decoded(*codec, input.rest(), count);
    for (const float value : values) is_finite &= std::isfinite(value);
    check_values(*codec, values);
    check_values(*codec, numbers);
  }
  return is_finite && count > 0;
}

}  // namespace horo
