// RankSupervisor: the loop that runs in the guard, from the start of this host's ranks to the end of the last.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/horo/run/events.h"
#include "tools/horo/run/launcher.h"
#include "tools/horo/run/local_world.h"
#include "tools/horo/run/output.h"
#include "tools/horo/run/rank_stream.h"
#include "tools/horo/run/verdict.h"

namespace horo::tools {

class RankSupervisor {
 public:
  // All outlive the job. `lifeline_fd` comes to its end when nobody waits for the job any more.
  RankSupervisor(const Launch& launch, const LocalWorld& world, int lifeline_fd);
  ~RankSupervisor();
  RankSupervisor(const RankSupervisor&) = delete;
  RankSupervisor& operator=(const RankSupervisor&) = delete;

  // To the end; the exit code. What ranks leave behind outside their process groups may still run.
  int run();

 private:
  struct Rank {
    Rank(RankSupervisor& job, int number, struct Child child);
    bool is_over() const { return !is_running && !output.is_open() && !errors.is_open(); }

    pid_t pid;
    bool is_running = true;
    RankEnd end;
    RankStream output, errors;
    Timer helpers;  // end of what it left behind in its process group
    ChildWatch ended;
  };

  void start_rank(int local_rank);
  RankStream::Ways ways_of(int rank, bool is_errors);
  void on_end(Rank& rank, int status);
  void end_helpers(Rank& rank);
  void on_signal(int signal);
  void on_outlet();
  void on_time_over();
  void out_of_patience();
  void ask_to_end();
  void signal_running(int signal);
  void look_for_end();
  bool end_what_is_over();
  void conclude();
  void say(const std::string& text) { errors_->write(launch_.title + ": " + text + "\n"); }
  std::string say_running() const;

  const Launch& launch_;
  const LocalWorld& world_;
  struct ev_loop* const loop_;
  const std::string host_;
  std::unique_ptr<Outlet> output_, own_errors_;
  Outlet* errors_;  // the same as output_ where both are one file, so that no line is cut
  IoWatch lifeline_;
  Timer patience_, time_;
  std::list<SignalWatch> signals_;
  std::list<Rank> ranks_;
  int ends_ = 0;             // seen so far
  std::optional<int> code_;  // decided before the verdict, or instead of it
  bool is_failing_ = false;  // a rank has failed; the others have their time to end
  bool is_asked_ = false;    // they were told to
  bool is_interrupted_ = false;
  bool is_concluded_ = false;
};

}  // namespace horo::tools
