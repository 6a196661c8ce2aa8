// The texts of failures of rounds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/round_table.h"

namespace horo {

// "tensor 'x': rank 0 submits it in round 2 of step 7, ranks 1, 2 in round 1 of step 8: rank 0 called backward() more
// often, ...". groups: the ranks that submitted it in each round; two groups at least.
std::string rounds_text(const std::string& name, const std::map<RoundNumber, std::vector<int>>& groups,
                        const std::string& of_set);
// "tensor 'x': ", the head of the failure with the next text.
std::string given_up_head(const std::string& name, const std::string& of_set);
// "rank 1 has given up round 1 of step 7: ValueError: ..."
std::string given_up_text(const GivenUpRound& failed);

}  // namespace horo
