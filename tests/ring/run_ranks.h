// Runs a world in one process: every rank is a thread with its own links, group and counters. A rank that throws aborts
// its own links, so that no other rank hangs. If a rank hangs all the same, a watchdog prints the last step of each
// rank and ends the process.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "ring/group.h"
#include "ring/links.h"

namespace horo::test {

enum class Wire { kInProcess, kTcp, kCheckedTcp, kWideTcp, kShm, kMpi };
const char* name_of(Wire wire);

struct WorldOptions {
  int size = 2;
  Wire wire = Wire::kInProcess;
  Config config;  // rank, size and addr are filled in
};

class Rank {
 public:
  Rank(Links links, const Config& config, std::shared_ptr<std::atomic<const char*>> state);
  int index() const { return config.rank; }
  int size() const { return config.size; }
  Transport& transport() { return *links.transport; }
  ControlLink& control() { return *links.control; }
  // For the watchdog's report. `step` must be a literal.
  void at(const char* step) { *state_ = step; }

  Config config;
  Links links;
  Counters counters;
  std::unique_ptr<Group> group;  // of the whole world

 private:
  std::shared_ptr<std::atomic<const char*>> state_;
};

using RankFunction = std::function<void(Rank&)>;

// Runs the function as every rank; returns what each threw, by rank (null: nothing).
std::vector<std::exception_ptr> run_ranks(const WorldOptions& options, const RankFunction& function);

// The same, where no rank may throw.
void run_ranks_well(const WorldOptions& options, const RankFunction& function);

// Runs the functions as threads under the watchdog; returns what each threw.
std::vector<std::exception_ptr> run_threads(const std::vector<std::function<void()>>& functions);

// The message of an exception, empty for none.
std::string message_of(const std::exception_ptr& error);
// The origin of a PeerLost; -2 if it is something else or nothing.
int origin_of(const std::exception_ptr& error);

// What waiting for a message of that peer that fills `in` throws; null: nothing.
std::exception_ptr receive_from(int peer, Transport& transport, std::span<std::byte> in);

// 127.0.0.1 with a port that was free a moment ago.
std::string free_address();
// Of one rank of a world over TCP.
Config config_of(int rank, int size, const std::string& addr);

inline TimePoint soon(int ms = 20'000) {
  return Clock::now() + std::chrono::milliseconds(ms);
}

}  // namespace horo::test
