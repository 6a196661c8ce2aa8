// A job of the rank program of `horo bench elastic` under horo run, and what its ranks print.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horo/base/time.h"
#include "tools/horo/bench/bench.h"
#include "tools/horo/run/child.h"

namespace horo::tools {

enum class ElasticKind { kBare, kStatic, kElastic };  // kBare: static, and its rounds have no barrier

// The end of a round on one rank.
struct Delivery {
  TimePoint at{};
  std::uint64_t members = 0;  // one bit for each rank at the start that took part
  Duration used{};            // processor time of the rank's process so far
};

// The last change of epoch on one rank: the beginning and the end of freeze(), and what the engine does with the view.
struct Change {
  TimePoint frozen_from{}, frozen{}, view{}, connected{}, installed{};
};

struct RankPrints {
  pid_t pid = 0;  // 0: not known yet
  bool is_alive = true;
  std::vector<Delivery> deliveries;
  Change change;      // known before the first delivery of the epoch
  TimePoint ended{};  // when horo run saw the end of the process; 0: it has not
};

class ElasticRun {
 public:
  // steps: after which the ranks end; 0: they do not. resident: the rank that holds bench.resident_bytes; -1: none
  // does. Throws as start() does.
  ElasticRun(const ElasticBench& bench, ElasticKind kind, int steps, int resident = -1);
  ~ElasticRun();  // ends the job
  ElasticRun(const ElasticRun&) = delete;
  ElasticRun& operator=(const ElasticRun&) = delete;

  const std::vector<RankPrints>& ranks() const { return ranks_; }
  const std::vector<double>& change_ms() const { return change_ms_; }  // of each epoch, as horo run tells it
  std::vector<int> alive() const;

  // Blocks until the ranks have printed something, at most until `until`. False if the job has ended.
  bool read(TimePoint until);
  // Reads until is_reached() returns true. Throws std::runtime_error with the output of a job that ends or that takes
  // longer than a minute.
  template <class IsReached>
  void read_until(const IsReached& is_reached) {
    const TimePoint end = Clock::now() + std::chrono::minutes(1);
    while (!is_reached()) {
      if (!read(end) || Clock::now() >= end) fail();
    }
  }
  void read_for(TimePoint until);  // throws std::runtime_error if the job ends before
  void read_to_end();              // throws std::runtime_error if the job fails
  // Ends a rank with SIGKILL; returns the time just before.
  TimePoint kill(int rank);

 private:
  [[noreturn]] void fail() const;
  bool read_stream(Descriptor& stream, std::string& rest, bool is_output);
  void take_print(const std::string& line);
  void take_story(const std::string& line);
  int wait();

  Child child_;
  bool is_waited_for_ = false;
  std::string output_rest_, errors_rest_;  // of an unfinished line
  std::string story_;
  std::vector<RankPrints> ranks_;
  std::vector<double> change_ms_;
};

}  // namespace horo::tools
