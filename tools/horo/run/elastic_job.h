// ElasticJob: the guard's side of an elastic job. It gives JobMembership what the guard sees of its ranks and what they
// send, and carries out the actions. docs/protocol.md has the protocol.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "elastic/membership.h"
#include "tools/horo/run/child.h"
#include "tools/horo/run/guard_socket.h"
#include "tools/horo/run/job_status.h"
#include "tools/horo/run/launcher.h"

namespace horo::tools {

class ElasticJob {
 public:
  // What the job asks of its supervisor.
  struct Orders {
    std::function<void(const std::string& text)> say;      // a line of the story
    std::function<void(const std::string& text)> end_job;  // the job cannot go on: ends all ranks
    std::function<void(int rank)> kill;                    // a rank that violates the protocol
    std::function<std::optional<int>(int rank)> ending;    // see status_of_ending()
    std::function<void()> changed;                         // is_evicted() or is_asking() may have changed
  };

  // `launch` outlives this object.
  ElasticJob(struct ev_loop* loop, const Launch& launch, Orders orders);

  // Makes the rank's socket and adds it to the program. The result stays open until the program has started.
  Descriptor connect(int rank, Program& program);

  // The rank's process has ended (a status of waitpid()), has stopped or continues. What it has sent counts before.
  void on_end(int rank, int status);
  void on_stop(int rank, bool is_stopped);

  bool is_evicted(int rank) const { return membership_.is_evicted(static_cast<MemberId>(rank)); }
  // Whether the job's exit code depends on that of this rank.
  bool is_judged(int rank) const;

  // ---- The state for `horo status`.

  // Asks the members that can answer for their figures.
  void ask();
  bool is_asking() const;  // an answer to the last ask() is due
  // Fills in all but the pid.
  void describe(JobStatus& status) const;

 private:
  // Each message of a member allows one more question: a member that reads nothing must not fill its socket.
  struct Asked {
    bool may_ask = true;
    bool is_due = false;  // since the last ask()
    Report report = {};
    std::optional<TimePoint> answered;  // the time of the report
  };

  void take(MemberId id, const MemberMessage& message);
  void look_at_missed();
  std::optional<MemberFigures> figures_of(MemberId id) const;
  void take(const MembershipEvent& event);
  void carry_out(MembershipAction& action);
  void send(MemberId id, GuardMessage message);

  Orders orders_;
  struct ev_loop* const loop_;
  JobMembership membership_;
  Timer timer_, look_;
  std::optional<MemberId> missed_;  // another member misses it; its process may be ending
  int looks_ = 0;                   // at it so far
  std::map<MemberId, std::unique_ptr<GuardSocket>> sockets_;
  std::map<MemberId, Asked> asked_;
  std::uint32_t secret_epoch_ = 0;
  JobKey secret_{};  // of the epoch secret_epoch_, if that is not 0
};

}  // namespace horo::tools
