#include "elastic/job_view.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "horo/base/check.h"
#include "horo/base/error.h"

namespace horo {
namespace {

constexpr std::array<std::string_view, 13> kWords = {"starting", "running", "installing", "frozen", "parked",
                                                     "stopped",  "left",    "failed",     "died",   "evicted",
                                                     "silent",   "ready",   "joining"};
constexpr std::size_t kMaxDetail = 4'096;  // bytes; longer texts are cut
constexpr std::size_t kMemberBytes = 6;    // with an empty detail
constexpr std::uint8_t kCanAnswer = 1, kIsOut = 2, kIsEvicted = 4, kIsJudged = 8, kHasRank = 16, kAllFlags = 31;

bool has_rank(const JobView& view, MemberId id) {
  return std::binary_search(view.ranks.begin(), view.ranks.end(), id);
}

bool read_bool(ByteReader& in) {
  const std::uint8_t value = in.u8();
  if (value > 1) throw ProtocolError("a flag is " + std::to_string(value) + ", expected 0 or 1");
  return value == 1;
}

std::size_t read_some(ByteReader& in, std::size_t element_bytes) {
  const std::uint32_t count = in.count(element_bytes);
  if (count <= kMaxMembers) return count;
  throw ProtocolError(std::to_string(count) + " members, at most " + std::to_string(kMaxMembers) + " expected");
}

void write_one(ByteWriter& out, const JobChange::Member& member) {
  const MemberState& state = member.view.state;
  const auto word = std::find(kWords.begin(), kWords.end(), state.word);
  HORO_CHECK(word != kWords.end());
  out.u8(static_cast<std::uint8_t>(word - kWords.begin()));
  out.text(std::string_view(state.detail).substr(0, kMaxDetail));
  const int flags = (state.can_answer ? kCanAnswer : 0) | (member.view.is_out ? kIsOut : 0) |
                    (member.view.is_evicted ? kIsEvicted : 0) | (member.view.is_judged ? kIsJudged : 0) |
                    (member.has_rank ? kHasRank : 0);
  out.u8(static_cast<std::uint8_t>(flags));
}

JobChange::Member read_one(ByteReader& in) {
  const std::uint8_t word = in.u8();
  if (word >= kWords.size()) throw ProtocolError("a member without a state");
  std::string detail = in.text(kMaxDetail);
  const std::uint8_t flags = in.u8();
  if (flags > kAllFlags) throw ProtocolError("the flags of a member are " + std::to_string(flags));
  const auto has = [flags](std::uint8_t flag) { return (flags & flag) != 0; };
  MemberState state{std::string(kWords.at(word)), std::move(detail), has(kCanAnswer)};
  return {{std::move(state), has(kIsOut), has(kIsEvicted), has(kIsJudged)}, has(kHasRank)};
}

}  // namespace

JobView job_view_of(const JobMembership& membership, std::size_t members) {
  JobView view{membership.epoch(), membership.is_parked(), membership.members(), {}};
  const std::vector<MemberId> judged = membership.judged_members();  // ascending
  view.members.reserve(members);
  for (MemberId id = 0; id < members; ++id) {
    const bool is_judged = std::binary_search(judged.begin(), judged.end(), id);
    view.members.push_back({membership.state_of(id), membership.is_out(id), membership.is_evicted(id), is_judged});
  }
  return view;
}

JobView first_job_view(std::size_t members) {
  JobView view{0, false, std::vector<MemberId>(members), {}};
  std::iota(view.ranks.begin(), view.ranks.end(), MemberId{0});
  view.members.assign(members, {{"starting", ""}, false, false, true});
  return view;
}

JobChange change_of(const JobView& from, const JobView& to) {
  JobChange change{to.epoch, to.is_parked, false, {}};
  for (MemberId id = 0; id < to.members.size(); ++id) {
    const bool has_rank_now = has_rank(to, id);
    const bool is_new = id >= from.members.size();
    if (!is_new && to.members[id] == from.members[id] && has_rank_now == has_rank(from, id)) continue;
    change.members.emplace_hint(change.members.end(), id, JobChange::Member{to.members[id], has_rank_now});
  }
  return change;
}

void apply(const JobChange& change, JobView& view) {
  const std::size_t known = view.members.size();
  const std::size_t last = change.members.empty() ? 0 : std::size_t{change.members.rbegin()->first} + 1;
  const std::size_t all = std::max(known, last);
  const auto first_new = change.members.lower_bound(static_cast<MemberId>(known));
  const auto named = static_cast<std::size_t>(std::distance(first_new, change.members.end()));
  if (all > kMaxMembers || named != all - known) throw ProtocolError("the state of another job");
  if (change.is_from_first) view = first_job_view(known);
  view.members.resize(all);
  view.epoch = change.epoch;
  view.is_parked = change.is_parked;
  std::vector<MemberId> ranks;
  for (MemberId id = 0; id < view.members.size(); ++id) {
    const auto changed = change.members.find(id);
    if (changed != change.members.end()) view.members[id] = changed->second.view;
    if (changed != change.members.end() ? changed->second.has_rank : has_rank(view, id)) ranks.push_back(id);
  }
  view.ranks = std::move(ranks);
}

void write(ByteWriter& out, const JobView& view) {
  out.u32(view.epoch);
  out.u8(view.is_parked ? 1 : 0);
  out.u32(static_cast<std::uint32_t>(view.members.size()));
  for (MemberId id = 0; id < view.members.size(); ++id) write_one(out, {view.members[id], has_rank(view, id)});
}

void write(ByteWriter& out, const JobChange& change) {
  out.u32(change.epoch);
  out.u8(change.is_parked ? 1 : 0);
  out.u8(change.is_from_first ? 1 : 0);
  out.u32(static_cast<std::uint32_t>(change.members.size()));
  for (const auto& [id, member] : change.members) {
    out.u32(id);
    write_one(out, member);
  }
}

JobView read_job_view(ByteReader& in) {
  JobView view;
  view.epoch = in.u32();
  view.is_parked = read_bool(in);
  const std::size_t members = read_some(in, kMemberBytes);
  for (MemberId id = 0; id < members; ++id) {
    JobChange::Member member = read_one(in);
    if (member.has_rank) view.ranks.push_back(id);
    view.members.push_back(std::move(member.view));
  }
  return view;
}

JobChange read_job_change(ByteReader& in) {
  JobChange change;
  change.epoch = in.u32();
  change.is_parked = read_bool(in);
  change.is_from_first = read_bool(in);
  for (std::size_t left = read_some(in, 4 + kMemberBytes); left > 0; --left) {
    const MemberId id = in.u32();
    if (!change.members.empty() && id <= change.members.rbegin()->first)
      throw ProtocolError("members are not in ascending order");
    change.members.emplace_hint(change.members.end(), id, read_one(in));
  }
  return change;
}

}  // namespace horo
