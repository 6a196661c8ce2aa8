// ServiceProcess: a subcommand of this executable that serves the job beside the ranks, such as its agent. It is
// started again whenever it ends; one that hangs is killed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "tools/horo/run/child.h"
#include "tools/horo/run/events.h"
#include "tools/horo/run/output.h"
#include "tools/horo/run/rank_stream.h"

namespace horo::tools {

class ServiceProcess {
 public:
  struct Service {
    std::string name;                                  // "agent", for texts
    std::function<Program()> program;                  // of each start
    std::function<void()> started;                     // after each start; may be empty
    std::function<void(const std::string& text)> say;  // lines for a person
    StreamWriter* output = nullptr;                    // gets the lines that the process prints
    double patience_s = 0;                             // a process that is stopped for so long is killed
    bool answers = false;                              // or does not answer: see answered()
  };

  // Starts it. Throws std::system_error or StartFailed if the first start fails.
  ServiceProcess(struct ev_loop* loop, Service service);
  ~ServiceProcess();
  // Blocks until the process has ended, at most for so long.
  void await_end(std::chrono::milliseconds limit) const;
  void end_within(std::chrono::milliseconds limit);  // the same, after SIGTERM
  ServiceProcess(const ServiceProcess&) = delete;
  ServiceProcess& operator=(const ServiceProcess&) = delete;

  // The process runs. A service that answers does so often, within its patience.
  void answered();
  pid_t pid() const { return pid_; }  // 0: it is about to be started

 private:
  void start_now();
  void on_end(int status);
  void give_up(const std::string& why);

  struct ev_loop* const loop_;
  const Service service_;
  Timer again_;
  PatientTimer stopped_, silent_;
  double pause_s_;
  double started_s_ = 0;
  pid_t pid_ = 0;
  std::unique_ptr<RankStream> output_, errors_;
  std::unique_ptr<ChildWatch> ended_;
};

}  // namespace horo::tools
