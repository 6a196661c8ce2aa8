// HostsJob: the event loop of `horo run --hosts`, in the guard: one `horo host` per host, this one's as a child, the
// others' behind ssh.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "horo/base/auth.h"
#include "tools/horo/run/events.h"
#include "tools/horo/run/hosts_launch.h"
#include "tools/horo/run/output.h"
#include "tools/horo/run/rank_stream.h"

namespace horo::tools {

class HostsJob {
 public:
  // `launch` outlives this object. `lifeline_fd` reaches its end when the front process of the job dies.
  HostsJob(const HostsLaunch& launch, int lifeline_fd);
  ~HostsJob();
  HostsJob(const HostsJob&) = delete;
  HostsJob& operator=(const HostsJob&) = delete;
  int run();

 private:
  struct Host;
  struct Channel;
  void start_host(std::size_t index);
  RankStream::Destinations destinations_of(Host& host, bool is_errors);
  bool take_line(Host& host, std::string_view line);
  bool pass_early(const Host& host, std::string_view line);
  void on_ready(Host& host, const std::string& version);
  void note_end(Host& host);
  void on_end(Host& host, int status);
  void on_signal(int signal);
  void on_time();
  void on_writer();
  void fail_start(int code, const std::string& text);
  void check_end();
  int code_of_hosts() const;
  void send_byte(std::uint8_t byte);
  void kill_all();
  std::string running_text() const;
  void say(const std::string& text);

  const HostsLaunch& launch_;
  const JobKey key_ = make_job_key();
  struct ev_loop* const loop_;
  StreamWriter output_, errors_;
  IoWatch lifeline_;
  Timer time_;   // until all hosts are ready; then for the others to end after a failure
  Timer alive_;  // until the next kAlive
  std::list<SignalWatch> signals_;
  std::list<Host> hosts_;
  std::optional<int> code_;
  int ends_ = 0, interrupts_ = 0;
  bool is_going_ = false, is_ending_ = false, is_terminating_ = false;
};

}  // namespace horo::tools
