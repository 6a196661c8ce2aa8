// JobRecord: what a rendezvous must know to go on where it, or another one, was. It is stored whole at each change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "elastic/host_messages.h"
#include "elastic/membership.h"

namespace horo {

struct JobRecord {
  std::uint64_t term = 0;  // rises by one with each start of a rendezvous
  JobSpec spec;
  std::map<std::uint32_t, std::uint64_t> incarnations;  // by host: the start of `horo run` that takes part
  std::map<std::uint32_t, std::uint64_t> expected;      // the same, of hosts that have called and not registered yet
  std::vector<std::uint64_t> ended;                     // the incarnations of the job before
  std::map<std::uint32_t, std::string> evicted;         // hosts that are locked out, and the reason as a sentence
  MembershipSnapshot membership;
  std::vector<StoryTold> story;  // the last lines of the job, some of which hosts may not have
  bool is_over = false;          // a new job may begin
  bool operator==(const JobRecord&) const = default;
};

std::vector<std::byte> encode(const JobRecord& record);
// Throws ProtocolError for anything that encode() does not write.
JobRecord decode_job_record(std::span<const std::byte> bytes);

}  // namespace horo
