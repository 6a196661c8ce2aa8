// The number is one block of HKDF-Expand (RFC 5869): the token is uniformly random, so it needs no HKDF-Extract.
#include "elastic/service/enrolment.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "horo/base/wire.h"

namespace horo {

bool is_private_number(const PrivateNumber& number) {
  static constexpr std::array<std::uint8_t, std::tuple_size_v<PrivateNumber>> kOrder = {
      0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
      0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51};
  const auto order = std::as_bytes(std::span(kOrder));
  const bool is_zero = std::all_of(number.begin(), number.end(), [](std::byte byte) { return byte == std::byte{0}; });
  return !is_zero && std::lexicographical_compare(number.begin(), number.end(), order.begin(), order.end());
}

// The first block that is a private number (FIPS 186-5, appendix A.2.2): block 1, except for one token in 2^32.
PrivateNumber enrolment_number(const JobKey& token, const std::string& job) {
  for (std::uint8_t block = 1;; ++block) {
    ByteWriter info;
    info.text("horo enrolment key 1");
    info.text(job);
    info.u8(block);
    const PrivateNumber number = hmac_sha256(token, info.bytes());
    if (is_private_number(number)) return number;
  }
}

std::string job_mark(const std::string& job) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const std::string_view label = "horo job";
  const Mac hash = hmac_sha256(std::as_bytes(std::span(label)), std::as_bytes(std::span(job)));
  std::string mark = "horo job ";
  for (const std::byte byte : std::span(hash).first<16>()) {
    mark += kDigits[std::to_integer<unsigned>(byte) >> 4];
    mark += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return mark;
}

}  // namespace horo
