// The stream's items of process sets and joins.
#include <algorithm>
#include <utility>

#include "controller/member.h"
#include "controller/texts.h"
#include "horo/base/error.h"

namespace horo {

void Member::apply(const DefineSet& item, Actions& actions) {
  if (item.set != sets_.next()) {
    throw ProtocolError("rank 0 added process set " + std::to_string(item.set) + ", process set " +
                        std::to_string(sets_.next()) + " expected");
  }
  const std::string name = item.name.empty() ? set_text(item.set, "") : item.name;
  AddSet added{item.set, name, item.ranks, item.shrinks, item.by_members, {}};
  sets_.add(item.name, item.ranks, item.shrinks, item.by_members);
  if (has_submitted(item.set)) added.keys = {pending_key(item.tensor, "added a process set for")};
  actions.emplace_back(added);
  for (const Key key : added.keys) finish(key);
}

// This rank has part in the begin and the end of the set.
bool Member::has_submitted(std::uint32_t set) const {
  return sets_.find(set)->by_members ? is_member(set) : sets_.knows(config_.rank, set);
}

void Member::apply(const EndSet& item, Actions& actions) {
  if (item.set == 0 || sets_.find(item.set) == nullptr) {
    throw ProtocolError("rank 0 removed process set " + std::to_string(item.set) + ", which does not exist");
  }
  RemoveSet removed{item.set, {}};
  if (has_submitted(item.set)) removed.keys = {pending_key(item.tensor, "removed a process set for")};
  std::vector<Key> pending;
  for (const auto& [other, t] : tensors_) {
    if (t.pending && t.spec.set == item.set) pending.push_back(other);
  }
  std::sort(pending.begin(), pending.end());
  for (const Key other : pending) fail(other, removed_text(tensor(other).spec.name, of_set(item.set)), actions);
  actions.emplace_back(removed);
  for (const Key key : removed.keys) finish(key);
  std::erase_if(owed_, [&](const auto& owed) { return owed.first.set == item.set; });
  joins_.erase(item.set);
  plannable_.erase(item.set);
  std::erase(queued_ended_, item.set);
  std::erase_if(queued_done_, [&](const Done& done) { return done.set == item.set; });
  std::erase_if(queued_rounds_, [&](const RoundBegun& begun) { return begun.stream.set == item.set; });
  sets_.remove(item.set);
}

void Member::apply(const JoinOver& item, Actions& actions) {
  if (!is_member(item.set)) return;
  const auto join = joins_.extract(item.set);
  if (!item.text.empty()) {
    if (!join.empty()) fail(join.mapped(), item.text, actions);
    return;
  }
  if (join.empty()) {
    throw ProtocolError("rank 0 ended the join" + of_set_text(item.set, sets_.find(item.set)->name) + ", but rank " +
                        std::to_string(config_.rank) + " has not joined");
  }
  // Unnamed operations are counted from zero again; earlier failures do not apply to them.
  std::erase_if(owed_, [&](const auto& owed) { return owed.first.set == item.set; });
  actions.emplace_back(Joined{item.set, item.last, {join.mapped()}});
  finish(join.mapped());
}

}  // namespace horo
