#include "horo/tensors/join_state.h"

#include <algorithm>

#include "horo/base/error.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

constexpr std::size_t kMaxText = 64 << 10;
constexpr std::uint8_t kShrinks = 1, kByMembers = 2;

void expect(bool is_valid, const char* what) {
  if (!is_valid) throw ProtocolError(std::string("the state for a rank that joins is not valid: ") + what);
}

JoinState::Set read_set(ByteReader& in) {
  JoinState::Set set;
  set.name = in.text(kMaxText);
  const std::uint8_t flags = in.u8();
  expect(flags <= (kShrinks | kByMembers), "flags");
  set.shrinks = (flags & kShrinks) != 0;
  set.by_members = (flags & kByMembers) != 0;
  const std::uint32_t count = in.count(4);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t member = in.u32();
    expect(set.members.empty() || set.members.back() < member, "members of a process set are not ascending");
    set.members.push_back(member);
  }
  return set;
}

}  // namespace

std::vector<std::byte> encode(const JoinState& state) {
  ByteWriter out;
  out.u32(state.last_set);
  out.u32(static_cast<std::uint32_t>(state.sets.size()));
  for (const auto& [number, set] : state.sets) {
    out.u32(number);
    out.text(set.name);
    out.u8(static_cast<std::uint8_t>((set.shrinks ? kShrinks : 0) | (set.by_members ? kByMembers : 0)));
    out.u32(static_cast<std::uint32_t>(set.members.size()));
    for (const std::uint32_t member : set.members) out.u32(member);
  }
  out.u32(static_cast<std::uint32_t>(state.first_sets.size()));
  for (const auto& [member, first] : state.first_sets) {
    out.u32(member);
    out.u32(first);
  }
  out.u32(static_cast<std::uint32_t>(state.unnamed.size()));
  for (const auto& [kind, count] : state.unnamed) {
    out.u32(kind.first);
    out.text(kind.second);
    out.u64(count);
  }
  return out.take();
}

JoinState decode_join_state(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  JoinState state;
  state.last_set = in.u32();
  const std::uint32_t sets = in.count(13);
  for (std::uint32_t i = 0; i < sets; ++i) {
    const std::uint32_t number = in.u32();
    expect(number >= 1 && number <= state.last_set, "the number of a process set");
    expect(state.sets.empty() || state.sets.rbegin()->first < number, "process sets are not ascending");
    state.sets.emplace_hint(state.sets.end(), number, read_set(in));
  }
  const std::uint32_t members = in.count(8);
  for (std::uint32_t i = 0; i < members; ++i) {
    const std::uint32_t member = in.u32(), first = in.u32();
    expect(first <= state.last_set + std::uint64_t{1}, "the first process set of a rank");
    expect(state.first_sets.empty() || state.first_sets.rbegin()->first < member, "ranks are not ascending");
    state.first_sets.emplace_hint(state.first_sets.end(), member, first);
  }
  const std::uint32_t kinds = in.count(16);
  for (std::uint32_t i = 0; i < kinds; ++i) {
    const std::uint32_t channel = in.u32();
    std::pair kind(channel, in.text(kMaxText));
    expect(state.unnamed.empty() || state.unnamed.rbegin()->first < kind, "unnamed calls are not ascending");
    state.unnamed.emplace_hint(state.unnamed.end(), std::move(kind), in.u64());
  }
  in.expect_end();
  return state;
}

std::vector<int> ranks_of(const JoinState::Set& set, std::span<const std::uint32_t> members) {
  std::vector<int> ranks;
  for (const std::uint32_t id : set.members) {
    const auto found = std::find(members.begin(), members.end(), id);
    if (found != members.end()) ranks.push_back(static_cast<int>(found - members.begin()));
  }
  if (!set.shrinks && ranks.size() < set.members.size()) ranks.clear();
  return ranks;
}

std::vector<std::uint32_t> first_sets_of(const JoinState& state, std::span<const std::uint32_t> members) {
  std::vector<std::uint32_t> first;
  for (const std::uint32_t id : members) {
    const auto found = state.first_sets.find(id);
    first.push_back(found == state.first_sets.end() ? state.last_set + 1 : found->second);
  }
  return first;
}

}  // namespace horo
