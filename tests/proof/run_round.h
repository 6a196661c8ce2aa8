// Runs rounds: ranks are threads, and each team is a group of its own over the same transports.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ring/links.h"
#include "tests/proof/oracle.h"
#include "tests/proof/round.h"

namespace horo::proof {

// Connects `size` ranks in this process. The result is by rank.
std::vector<Links> connect(int size, test::Wire wire);

// Connected ranks, on which any number of rounds can be run one after the other.
class World {
 public:
  World(int size, test::Wire wire);
  int size() const { return static_cast<int>(links_.size()); }
  const Links& links(int rank) const { return links_[static_cast<std::size_t>(rank)]; }
  Transport& transport(int rank) { return *links_[static_cast<std::size_t>(rank)].transport; }
  // The first of two plan numbers for a collective; one with a codec uses both.
  std::uint64_t next_plans() { return plan_ += 2; }

 private:
  std::vector<Links> links_;
  std::uint64_t plan_ = 0;
};

// Is called with a member's output before the output is checked, and may change it to plant a fault.
using Tamper = std::function<void(const Job& job, std::size_t member, std::span<std::byte> output)>;

// Runs the round and checks every byte of every buffer: outputs, inputs that must not change, and the bytes around
// both. Returns one line with rank and job for each fault. Aborts the process with a report of the state of each rank
// if the round takes more than two minutes.
std::vector<std::string> run_round(World& world, const Round& round, const Tamper& tamper = {});

// The same with new connections.
std::vector<std::string> run_round_alone(const Round& round, const Tamper& tamper = {});

struct FailedRound {
  Round smallest;
  std::vector<std::string> wrong;  // its faults
};

struct Tally {
  std::uint64_t rounds = 0;
  std::uint64_t jobs = 0;
  std::uint64_t outputs = 0;                 // buffers that were checked
  std::map<std::string, std::uint64_t> ran;  // jobs by "all_reduce by tree", type, operation, wire ...
  std::vector<FailedRound> found;
  std::vector<std::string> flaky;  // rounds that failed once but not when repeated, and their faults
};

// Runs rounds, drawn from `seed` on, until `jobs` jobs have run or three rounds have failed.
Tally run_rounds(std::uint64_t seed, std::uint64_t jobs, const Tamper& tamper = {});

// The failed rounds with their seeds, for people.
std::string describe(const Tally& tally);

}  // namespace horo::proof
