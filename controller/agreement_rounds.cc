// Reports in rounds that a rank has given up. The failure of such a report is sent to the reporting rank alone, because
// other ranks may have submitted the same tensor in a later round.
#include <algorithm>
#include <utility>

#include "controller/agreement.h"
#include "controller/round_texts.h"
#include "controller/texts.h"

namespace horo {
namespace {

// True if the rank's report in this round, or in a round that is not known, is part of the instance.
bool has_reported_in(const Entry& entry, int rank, const RoundNumber& round) {
  return entry.ready.contains(rank) && without_digest(entry.rounds.of(rank).value_or(round)) == without_digest(round);
}

}  // namespace

bool Agreement::report(VersionRef ref, int rank, bool absent, TimePoint now) {
  Entry& entry = *ref.entry;
  const RoundStream stream{entry.name.set, entry.versions[ref.version].spec.round_stream};
  const std::optional<RoundNumber> round = tables_.rounds.current(rank, stream);
  if (round) {
    for (const GivenUpRound* failed : tables_.rounds.failures(stream, *round)) {
      if (has_reported_in(entry, failed->rank, *round)) continue;
      refuse(entry.name, {rank}, *failed);
      const auto has_id = [](const Version& version) { return version.id.has_value(); };
      if (entry.ready.empty() && std::none_of(entry.versions.begin(), entry.versions.end(), has_id)) {
        tables_.tensors.finish(entry);
      }
      return false;
    }
  }
  mark(ref, rank, absent, now);
  if (stream.number != 0) entry.rounds.add(rank, round);
  return true;
}

void Agreement::give_up(int rank, const RoundFailed& failed, const StallPatience& patience) {
  const GivenUpRound* failure = tables_.rounds.fail(rank, failed);
  if (failure == nullptr) return;
  const std::uint32_t set = failed.stream.set;
  for (const PlanId id : tables_.plans.live()) {
    Plan& plan = *tables_.plans.find(id);
    const bool is_of_stream = plan.set == set && plan.rounds.contains(failed.stream.number);
    if (is_of_stream && !plan.complete.contains(rank)) split(plan, patience);
  }
  for (Entry* entry : tables_.tensors.of_set(set)) {
    const bool waits = !ReadyTable::complete(*entry, tables_.joins.ranks(set));
    if (waits && !has_reported_in(*entry, rank, failure->round)) withdraw(*entry, failed.stream.number, *failure);
  }
}

// Deletes the reports of the failed round. A unit fails completely, because a rank reports all of its tensors or none.
void Agreement::withdraw(Entry& entry, std::uint64_t stream, const GivenUpRound& failed) {
  std::vector<int> ranks;
  for (const Version& version : entry.versions) {
    if (version.spec.round_stream != stream) continue;
    for (const int rank : version.ranks.ranks()) {
      const std::optional<RoundNumber> round = entry.rounds.of(rank);
      if (round && without_digest(*round) == without_digest(failed.round)) ranks.push_back(rank);
    }
  }
  if (ranks.empty()) return;
  std::sort(ranks.begin(), ranks.end());
  for (const int rank : ranks) ReadyTable::unmark(entry, rank);
  refuse(entry.name, std::move(ranks), failed);
  if (entry.ready.empty()) finish(entry);
}

// Failures of the same ranks with the same text share an item.
void Agreement::refuse(const TensorName& name, std::vector<int> ranks, const GivenUpRound& failed) {
  FailTensors::Tensor tensor{name, false, given_up_head(name.name, tables_.of_set(name.set))};
  std::string text = given_up_text(failed);
  auto* last = items_.empty() ? nullptr : std::get_if<FailTensors>(&items_.back());
  if (last != nullptr && last->ranks == ranks && last->text == text) return last->tensors.push_back(std::move(tensor));
  items_.emplace_back(FailTensors{{std::move(tensor)}, std::move(text), {}, std::move(ranks)});
}

}  // namespace horo
