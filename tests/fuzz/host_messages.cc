// The messages between guards, agents and the rendezvous of a job on several hosts: what decodes is encoded to the same
// bytes.
#include "elastic/host_messages.h"

#include <algorithm>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "tests/fuzz/targets.h"

namespace horo {
namespace {

void check_spec(std::span<const std::byte> bytes) {
  const JobSpec spec = decode_job_spec(bytes);
  HORO_CHECK(std::ranges::equal(encode(spec), bytes));
  HORO_CHECK(spec.members() > 0 && spec.members() <= kMaxMembers);
  for (std::size_t host = 0; host < spec.ranks_by_host.size(); ++host) {
    const MemberId first = spec.first_member(host);
    HORO_CHECK(spec.host_of(first) == host && spec.host_of(first + spec.ranks_by_host[host] - 1) == host);
  }
}

}  // namespace

bool fuzz_host_messages(std::span<const std::byte> bytes) {
  FuzzInput input(bytes);
  const std::size_t what = input.number(1) % 3;
  try {
    if (what == 0) check_spec(input.rest());
    if (what == 1) HORO_CHECK(std::ranges::equal(encode(decode_guard_says(input.rest())), input.rest()));
    if (what == 2) HORO_CHECK(std::ranges::equal(encode(decode_agent_says(input.rest())), input.rest()));
    return true;
  } catch (const ProtocolError&) {
    return false;
  }
}

}  // namespace horo
