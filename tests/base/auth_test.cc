#include "horo/base/auth.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/base/bytes.h"

namespace horo {
namespace {

std::string repeated(std::string_view hex, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += hex;
  return text;
}

struct Vector {
  std::vector<std::byte> key;
  std::vector<std::byte> text;
  std::string mac;
};

// RFC 4231, section 4: cases 1, 2, 3, 4, 6 and 7 (case 5 truncates the output, which horo does not use).
std::vector<Vector> rfc_4231() {
  const auto text = [](std::string_view words) {
    const auto bytes = bytes_of(words);
    return std::vector(bytes.begin(), bytes.end());
  };
  return {
      {from_hex(repeated("0b", 20)), text("Hi There"),
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {text("Jefe"), text("what do ya want for nothing?"),
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {from_hex(repeated("aa", 20)), from_hex(repeated("dd", 50)),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {from_hex("0102030405060708090a0b0c0d0e0f10111213141516171819"), from_hex(repeated("cd", 50)),
       "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
      {from_hex(repeated("aa", 131)), text("Test Using Larger Than Block-Size Key - Hash Key First"),
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {from_hex(repeated("aa", 131)),
       text("This is a test using a larger than block-size key and a larger than block-size data. "
            "The key needs to be hashed before being used by the HMAC algorithm."),
       "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
  };
}

TEST(Auth, HmacMatchesRfc4231) {
  for (const Vector& v : rfc_4231()) EXPECT_EQ(to_hex(hmac_sha256(v.key, v.text)), v.mac);
}

TEST(Auth, AnEmptyKeyIsAKeyAndNotTheOneBefore) {
  const std::string of_nothing = "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad";
  hmac_sha256(bytes_of("some key"), bytes_of("some text"));
  EXPECT_EQ(to_hex(hmac_sha256({}, {})), of_nothing);
}

TEST(Auth, MacsThatDifferInAnyBitAreNotEqual) {
  const Mac mac = hmac_sha256(bytes_of("key"), bytes_of("text"));
  EXPECT_TRUE(equal_macs(mac, mac));
  for (std::size_t bit = 0; bit < mac.size() * 8; ++bit) {
    Mac other = mac;
    other[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(equal_macs(mac, other)) << "bit " << bit;
  }
}

TEST(Auth, NoncesAndKeysAreNeverTheSameTwice) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(seen.insert(to_hex(make_nonce())).second);
    EXPECT_TRUE(seen.insert(to_hex(make_job_key())).second);
  }
}

}  // namespace
}  // namespace horo
