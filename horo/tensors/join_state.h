// JoinState: what a session that joins a running elastic job has to know of the sessions of the other ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace horo {

struct JoinState {
  struct Set {
    std::string name;
    std::vector<std::uint32_t> members;  // MemberIds, ascending
    bool shrinks = false;
    bool by_members = false;
    bool operator==(const Set&) const = default;
  };
  std::map<std::uint32_t, Set> sets;  // the process sets but the world, by number
  std::uint32_t last_set = 0;         // highest number of a process set so far
  // By the MemberIds of the ranks that are there: the first set that each of them knows.
  std::map<std::uint32_t, std::uint32_t> first_sets;
  // Unnamed calls of the world that are released, by channel and kind: the next call of a rank has this number.
  std::map<std::pair<std::uint32_t, std::string>, std::uint64_t> unnamed;
  bool operator==(const JoinState&) const = default;
};

std::vector<std::byte> encode(const JoinState& state);
// Throws ProtocolError for anything that encode() does not write.
JoinState decode_join_state(std::span<const std::byte> bytes);

// The set among the members of the next epoch: their ranks, ascending. Empty: it has lost a member, and does not
// shrink.
std::vector<int> ranks_of(const JoinState::Set& set, std::span<const std::uint32_t> members);
// The same for the first set that each rank knows. A rank that joins knows none of these sets.
std::vector<std::uint32_t> first_sets_of(const JoinState& state, std::span<const std::uint32_t> members);

}  // namespace horo
