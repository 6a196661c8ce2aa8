// Plays rounds: ranks are threads, each team a group of its own over the same transports.
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

// Ranks of this process that found each other, by rank.
std::vector<Links> connect(int size, test::Wire wire);

// Ranks that found each other; many rounds may be played on it, one after the other.
class World {
 public:
  World(int size, test::Wire wire);
  int size() const { return static_cast<int>(links_.size()); }
  const Links& links(int rank) const { return links_[static_cast<std::size_t>(rank)]; }
  Transport& transport(int rank) { return *links_[static_cast<std::size_t>(rank)].transport; }
  // The first of two numbers for the plans of a collective (one with a codec takes two).
  std::uint64_t next_plans() { return plan_ += 2; }

 private:
  std::vector<Links> links_;
  std::uint64_t plan_ = 0;
};

// Sees a member's output before it is judged, and may spoil it: how the tests of this test plant faults.
using Tamper = std::function<void(const Job& job, std::size_t member, std::span<std::byte> output)>;

// Runs the round and judges every byte of every buffer: outputs, inputs that must not change, and the bytes around
// both. Returns what is wrong, a line each with rank and job; empty: nothing. Ends the process, saying where each rank
// stands, if a thread does not end within two minutes.
std::vector<std::string> play(World& world, const Round& round, const Tamper& tamper = {});

// The same in a world of its own.
std::vector<std::string> play_alone(const Round& round, const Tamper& tamper = {});

struct Found {
  Round smallest;
  std::vector<std::string> wrong;  // in it
};

struct Tally {
  std::uint64_t rounds = 0;
  std::uint64_t jobs = 0;
  std::uint64_t outputs = 0;                 // buffers that were judged
  std::map<std::string, std::uint64_t> ran;  // jobs by "all_reduce by tree", type, operation, wire ...
  std::vector<Found> found;
  std::vector<std::string> unsteady;  // rounds that failed once and not again, with what was wrong
};

// Plays rounds drawn from `seed` on until that many jobs ran; stops looking after three rounds that fail.
Tally play_many(std::uint64_t seed, std::uint64_t jobs, const Tamper& tamper = {});

// All of it in words, with how to run it again.
std::string describe(const Tally& tally);

}  // namespace horo::proof
