#include "horo/engine/views.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace horo {
namespace {

constexpr std::chrono::milliseconds kInstallTimeout{5'000};

}  // namespace

std::vector<Card> cards_in(const View& view) {
  std::vector<Card> cards;
  for (const MemberId member : view.members) {
    const auto found = view.cards.find(member);
    cards.push_back(found == view.cards.end() ? Card() : found->second);
  }
  return cards;
}

Config config_in(const Membership& membership, const View& view, const Config& config) {
  Config own = config;
  own.rank = membership.rank;
  own.size = membership.size();
  own.local_size = own.size == 1 ? 1 : local_size_in(cards_in(view), own.rank);
  own.key = view.secret;
  own.start_timeout = std::min(own.start_timeout, kInstallTimeout);
  return own;
}

std::optional<MemberId> member_at(const std::vector<MemberId>& members, int rank) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= members.size()) return std::nullopt;
  return members[static_cast<std::size_t>(rank)];
}

Membership membership_in(const View& view, MemberId id) {
  const auto found = std::find(view.members.begin(), view.members.end(), id);
  if (found == view.members.end()) throw std::runtime_error("the view of the next epoch has no place for this rank");
  return {view.epoch, view.members, static_cast<int>(found - view.members.begin())};
}

Card NextDoor::renew() {
  door_ = {};
  door_ = open_();
  return door_.card;
}

// A process that is no member any more may be stopped in a collective, and write its result when it goes on.
Links NextDoor::connect(const View& view, const Config& config, const IsCancelled& is_cancelled,
                        const EpochState* before) {
  Door door = std::exchange(door_, {});
  if (before != nullptr && std::ranges::includes(view.members, before->membership.members) &&
      std::ranges::includes(view.members, offered_)) {
    door.arenas = before->links.arenas;
    offered_ = view.members;
  }
  return connect_doors(config, view.epoch, door, cards_in(view), is_cancelled);
}

int first_lost(const std::vector<int>& rank_of) {
  const auto lost = std::find(rank_of.begin(), rank_of.end(), -1);
  return lost == rank_of.end() ? -1 : static_cast<int>(lost - rank_of.begin());
}

}  // namespace horo
