// What JobMembership knows of a member, in words for a person.
#include "elastic/membership.h"

namespace horo {

MemberState JobMembership::state_of(MemberId id) const {
  const Member& member = at(id);
  switch (member.presence) {
    case Presence::kLeft:
      return {"left", member.detail};
    case Presence::kFailed:
      return {"failed", member.detail};
    case Presence::kDied:
      return {"died", member.detail};
    case Presence::kEvicted:
      return {"evicted", member.detail};
    case Presence::kHere:
      break;
  }
  if (member.stopped) return {"stopped", ""};
  if (!member.was_heard) return {"starting", ""};
  if (member.frozen) return {is_parked() ? "parked" : "frozen", "", true};
  return {member.is_installed ? "running" : "installing", "", true};
}

}  // namespace horo
