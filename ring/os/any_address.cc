#include "ring/os/any_address.h"

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>

namespace horo {

bool is_any_address(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr == htonl(INADDR_ANY);
  }
  if (address.sa_family != AF_INET6) return false;
  const auto& bytes = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr.s6_addr;
  constexpr std::array<std::uint8_t, 12> kMappedV4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const bool is_v4 = std::equal(kMappedV4.begin(), kMappedV4.end(), std::begin(bytes));
  const auto* begin = std::begin(bytes) + (is_v4 ? kMappedV4.size() : 0);
  return std::all_of(begin, std::end(bytes), [](std::uint8_t byte) { return byte == 0; });
}

bool is_any_address(const std::string& host) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  return is_any_address(*list->ai_addr);
}

}  // namespace horo
