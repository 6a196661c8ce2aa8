// A job of the rank program of `horo bench elastic` under horo run, and what its ranks print.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

// A job's key for its hosts, in a file that the destructor removes.
class KeyFile {
 public:
  KeyFile();  // throws std::system_error
  ~KeyFile();
  KeyFile(const KeyFile&) = delete;
  KeyFile& operator=(const KeyFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
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
  // The horo run of one host.
  struct HostRun {
    Child child;
    bool is_waited_for = false;
    std::string output_rest, errors_rest;  // of an unfinished line
  };

  [[noreturn]] void fail() const;
  Program program_of(const ElasticBench& bench, ElasticKind kind, std::size_t host, const std::string& port) const;
  bool read_stream(HostRun& run, bool is_output);
  void take_print(const std::string& line);
  void take_story(const std::string& line, bool is_first_host);
  int wait();

  std::unique_ptr<KeyFile> key_;  // null: all ranks run on this host
  std::vector<std::string> rank_words_;
  std::vector<HostRun> runs_;
  std::string story_;
  std::vector<RankPrints> ranks_;
  std::vector<double> change_ms_;
};

}  // namespace horo::tools
