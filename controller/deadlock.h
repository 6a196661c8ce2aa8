// Deadlocks: ranks that wait for one another. A tensor waits for the ranks that have not submitted it; a thread waits
// for its tensors, and continues when the last of them has ended. The search finds the greatest set of ranks of which
// every thread that has submitted before waits for a tensor that only ranks of the set have not submitted. None of
// these threads can continue, whatever the other ranks do. A rank that runs outside horo is in no such set.
#pragma once

#include <vector>

#include "controller/diagnosis_round.h"
#include "controller/leader_tables.h"
#include "controller/rank_set.h"
#include "horo/base/time.h"

namespace horo {

// answers: by rank. until: ranks whose waits have changed after this are not in the set.
RankSet find_deadlock(LeaderTables& tables, const std::vector<RankAnswer>& answers, TimePoint until);
// Since when the waits of this rank have not changed, according to its answer.
TimePoint unchanged_since(const RankAnswer& answer);

}  // namespace horo
