// The record of a job: what decodes is encoded to the same bytes, and a rendezvous goes on with it or refuses it.
#include <algorithm>
#include <chrono>

#include "elastic/service/job_record.h"
#include "elastic/service/rendezvous_core.h"
#include "horo/base/check.h"
#include "horo/base/error.h"
#include "tests/elastic/service/memory_store.h"
#include "tests/fuzz/targets.h"

namespace horo {
namespace {

// The rendezvous starts, the hosts of the record register, and time passes.
void go_on_with(const JobRecord& record, std::span<const std::byte> bytes) {
  MemoryStore store;
  store.record = {1, {bytes.begin(), bytes.end()}};
  TimePoint now = TimePoint{} + std::chrono::hours(1);
  RendezvousCore core(
      store, [](std::uint32_t) {}, now);
  HORO_CHECK(core.term() == record.term + 1);
  for (std::uint32_t host = 0; host < std::min<std::size_t>(record.spec.ranks_by_host.size(), 4); ++host) {
    const auto known = record.incarnations.find(host);
    HostHello hello{record.spec, host, known == record.incarnations.end() ? 1 : known->second, {}};
    const MemberId first = record.spec.first_member(host);
    for (MemberId id = first; id < first + record.spec.ranks_by_host[host]; ++id)
      hello.past.members.push_back({id, 0, {}});
    try {
      const Registration registration = core.register_host(hello, now);
      while (core.take_order(registration.number)) {
      }
    } catch (const HostRefused&) {
    }
    now += std::chrono::seconds(1);
    core.pass_time(now);
  }
  HORO_CHECK(core.job().has_value());
  RendezvousCore again(
      store, [](std::uint32_t) {}, now);
  HORO_CHECK(again.term() == core.term() + 1);
}

}  // namespace

bool fuzz_job_records(std::span<const std::byte> bytes) {
  try {
    const JobRecord record = decode_job_record(bytes);
    HORO_CHECK(std::ranges::equal(encode(record), bytes));
    go_on_with(record, bytes);
    return true;
  } catch (const ProtocolError&) {
    return false;
  }
}

}  // namespace horo
