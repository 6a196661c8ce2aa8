// OpenSSL computes the hashes and the kernel supplies random bytes; no other file uses either.
#include "horo/base/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace horo {
namespace {

template <class Bytes>
Bytes random_bytes() {
  Bytes bytes{};
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::getrandom(bytes.data() + have, bytes.size() - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw std::system_error(errno, std::generic_category(), "getrandom failed");
    have += static_cast<std::size_t>(got);
  }
  return bytes;
}

}  // namespace

Nonce make_nonce() {
  return random_bytes<Nonce>();
}
JobKey make_job_key() {
  return random_bytes<JobKey>();
}

Mac hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> text) {
  // OpenSSL takes a null key as "the key of the call before": an empty span must not become one.
  const std::byte empty{};
  const std::byte* key_data = key.empty() ? &empty : key.data();
  Mac mac{};
  unsigned int size = 0;
  const auto* done = ::HMAC(::EVP_sha256(), key_data, static_cast<int>(key.size()),
                            reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                            reinterpret_cast<unsigned char*>(mac.data()), &size);
  if (done == nullptr || size != mac.size()) throw std::runtime_error("HMAC-SHA256 failed in libcrypto");
  return mac;
}

bool equal_macs(const Mac& a, const Mac& b) {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace horo
