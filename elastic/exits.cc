#include "elastic/exits.h"

#include <algorithm>
#include <utility>

namespace horo {

std::vector<HostEvent> Exits::on(const HostEvent& event, TimePoint now) {
  if (const auto* sent = std::get_if<MemberSent>(&event)) {
    const auto* leave = std::get_if<Leave>(&sent->message);
    if (leave == nullptr) return {event};
    if (!left_.insert(sent->id).second) return {};
    if (!leave->with_process) return {event};
    exits_[sent->id] = {Leave{false, leave->reason}, now + kPatience};
    return {};
  }
  const auto* ended = std::get_if<MemberEnded>(&event);
  const auto found = ended == nullptr ? exits_.end() : exits_.find(ended->id);
  if (found == exits_.end()) return {event};
  const Exit exit = std::move(found->second);
  exits_.erase(found);
  if (!ended->succeeded) return {MemberSent{ended->id, Leave{true, ended->how, ended->how}}, event};
  if (exit.due) return {MemberSent{ended->id, exit.message}, event};
  return {event};
}

std::vector<HostEvent> Exits::pass_time(TimePoint now) {
  std::vector<HostEvent> told;
  for (auto& [id, exit] : exits_) {
    if (!exit.due || now < *exit.due) continue;
    exit.due.reset();
    told.emplace_back(MemberSent{id, exit.message});
  }
  return told;
}

std::optional<TimePoint> Exits::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [id, exit] : exits_) {
    if (exit.due) next = std::min(*exit.due, next.value_or(*exit.due));
  }
  return next;
}

}  // namespace horo
