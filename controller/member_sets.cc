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
  const Key key = pending_key(item.tensor, "added a process set for");
  const std::string name = item.name.empty() ? set_text(item.set, "") : item.name;
  actions.emplace_back(AddSet{item.set, name, item.ranks, item.shrinks, {key}});
  sets_.add(item.name, item.ranks, item.shrinks);
  finish(key);
}

void Member::apply(const EndSet& item, Actions& actions) {
  if (item.set == 0 || sets_.find(item.set) == nullptr) {
    throw ProtocolError("rank 0 removed process set " + std::to_string(item.set) + ", which does not exist");
  }
  const Key key = pending_key(item.tensor, "removed a process set for");
  std::vector<Key> pending;
  for (const auto& [other, t] : tensors_) {
    if (t.pending && t.spec.set == item.set) pending.push_back(other);
  }
  std::sort(pending.begin(), pending.end());
  for (const Key other : pending) fail(other, removed_text(tensor(other).spec.name, of_set(item.set)), actions);
  actions.emplace_back(RemoveSet{item.set, {key}});
  finish(key);
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
