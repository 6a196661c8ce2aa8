// What a view of the guard means for a member that enters its epoch.
#pragma once

#include <optional>
#include <vector>

#include "elastic/messages.h"
#include "horo/base/config.h"
#include "horo/engine/epoch_state.h"
#include "ring/links.h"

namespace horo {

// By rank. A member without a card gives an empty one, which cannot be read.
std::vector<Card> cards_in(const View& view);
// The settings of a member in this epoch. Its secret is the key of its connections. Local ranks never change.
Config config_in(const Membership& membership, const View& view, const Config& config);
// Throws std::runtime_error if it is not one of them.
Membership membership_in(const View& view, MemberId id);
// The first rank of the last epoch that is not in the next one; -1: none.
int first_lost(const std::vector<int>& rank_of);
// The door of this rank for the next epoch, while it is frozen. The other members connect to it when they have its
// card.
class NextDoor {
 public:
  explicit NextDoor(const Config& config) : open_(doors_of(config)) {}
  // Opens another one, and closes the one before.
  Card renew();
  // The door is closed when all have connected, or some could not. If no process that was given the shared memory of
  // `before` can go on without the others, the next epoch uses it again: to back memory takes time for each MiB. Null:
  // this is the first epoch. Throws as connect_doors does.
  Links connect(const View& view, const Config& config, const IsCancelled& is_cancelled, const EpochState* before);
  void close() { door_ = {}; }
  // An epoch has begun.
  void begin_epoch() { offered_.clear(); }

 private:
  const OpenDoor open_;
  Door door_;
  std::vector<MemberId> offered_;  // may have the memory of the present epoch, besides its members
};
// Nothing: no such rank.
std::optional<MemberId> member_at(const std::vector<MemberId>& members, int rank);

}  // namespace horo
