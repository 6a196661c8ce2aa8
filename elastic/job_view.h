// JobView: the state of an elastic job as its hosts and `horo status` see it. Hosts are told what has changed in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "elastic/membership.h"
#include "elastic/messages.h"
#include "horo/base/wire.h"

namespace horo {

struct MemberView {
  MemberState state;
  bool is_out = false, is_evicted = false;
  bool is_judged = false;  // the job's exit code depends on its own
  bool operator==(const MemberView&) const = default;
};
struct JobView {
  std::uint32_t epoch = 0;
  bool is_parked = false;
  std::vector<MemberId> ranks;      // of the epoch, ascending
  std::vector<MemberView> members;  // by id; those of processes that were started later at its end
  bool operator==(const JobView&) const = default;
};

JobView job_view_of(const JobMembership& membership, std::size_t members);
JobView first_job_view(std::size_t members);  // of a job that begins

// What a holder of an earlier JobView, or of the first one, needs.
struct JobChange {
  struct Member {
    MemberView view;
    bool has_rank = false;  // in the epoch
    bool operator==(const Member&) const = default;
  };
  std::uint32_t epoch = 0;
  bool is_parked = false;
  bool is_from_first = false;  // all members that are not named are as at the start
  std::map<MemberId, Member> members;
  bool operator==(const JobChange&) const = default;
};

// The change from one JobView of a job to a later one, which may have more members.
JobChange change_of(const JobView& from, const JobView& to);
// Throws ProtocolError if the change is that of another job.
void apply(const JobChange& change, JobView& view);

// Reading throws ProtocolError for anything that write() does not write.
void write(ByteWriter& out, const JobView& view);
void write(ByteWriter& out, const JobChange& change);
JobView read_job_view(ByteReader& in);
JobChange read_job_change(ByteReader& in);

}  // namespace horo
