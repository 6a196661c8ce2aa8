#include <algorithm>
#include <numeric>

#include "elastic/host_messages.h"
#include "horo/base/check.h"

namespace horo {

std::uint32_t JobSpec::members() const {
  return std::accumulate(ranks_by_host.begin(), ranks_by_host.end(), 0U);
}

MemberId JobSpec::first_member(std::size_t host) const {
  return std::accumulate(ranks_by_host.begin(), ranks_by_host.begin() + static_cast<std::ptrdiff_t>(host), 0U);
}

std::size_t JobSpec::host_of(MemberId id) const {
  HORO_CHECK(id < members());
  std::size_t host = 0;
  for (; id >= ranks_by_host[host]; ++host) id -= ranks_by_host[host];
  return host;
}

std::chrono::milliseconds agent_patience(const JobSpec& spec) {
  return std::max(spec.silence_limit / 3, std::chrono::milliseconds(500));
}

}  // namespace horo
