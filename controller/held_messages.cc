#include "controller/held_messages.h"

#include <utility>
#include <variant>

namespace horo {

RankSet concerned_by(const DownMessage& message, int size) {
  RankSet all(size), some(size);
  for (int rank = 0; rank < size; ++rank) all.insert(rank);
  for (const DownItem& item : message.items) {
    const auto* release = std::get_if<ReleaseTensors>(&item);
    if (release == nullptr || release->ranks.empty()) return all;
    for (const int rank : release->ranks) some.insert(rank);
  }
  return some;
}

void HeldMessages::add(Send send, bool is_concerned, Actions& actions) {
  Held& held = held_[static_cast<std::size_t>(send.to)];
  held.bytes += send.bytes.size();
  held.messages.push_back(std::move(send));
  if (!is_concerned && held.messages.size() < kMost && held.bytes < kMostBytes) return;
  for (Send& one : std::exchange(held, {}).messages) actions.emplace_back(std::move(one));
}

}  // namespace horo
