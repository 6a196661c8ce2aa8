// ElasticJob: the guard's side of an elastic job. It gives the Decision what the guard sees of its ranks and what they
// send, and carries out the orders. docs/protocol.md has the protocol.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "elastic/exits.h"
#include "elastic/host_messages.h"
#include "tools/horo/run/child.h"
#include "tools/horo/run/decision.h"
#include "tools/horo/run/job_status.h"
#include "tools/horo/run/launcher.h"
#include "tools/horo/run/owner_watch.h"
#include "tools/horo/run/packet_socket.h"

namespace horo::tools {

class ElasticJob {
 public:
  // What the job asks of its supervisor.
  struct Orders {
    std::function<void(const std::string& text)> say;      // a line of the story
    std::function<void(const std::string& text)> end_job;  // the job cannot go on: its ranks were told, and end
    std::function<void(const std::string& text)> fail;     // the job goes on elsewhere, and has failed here
    std::function<void(int rank)> kill;                    // a rank that violates the protocol
    std::function<std::optional<int>(int rank)> ending;    // see status_of_ending()
    std::function<void()> changed;                         // is_evicted() or is_asking() may have changed
  };

  // make_decision: called once, with functions that this object has.
  using MakeDecision = std::function<std::unique_ptr<Decision>(DecisionOrders)>;
  ElasticJob(struct ev_loop* loop, Orders orders, const MakeDecision& make_decision);

  // Makes the rank's socket and adds it to the program. The result stays open until the program has started.
  Descriptor connect(int rank, Program& program);

  // The rank's process has ended (a status of waitpid()), has stopped or continues. What it has sent counts before.
  void on_end(int rank, int status);
  void on_stop(int rank, bool is_stopped);

  bool is_evicted(int rank) const { return member(static_cast<MemberId>(rank)).is_evicted; }
  // Whether the job's exit code depends on that of this rank.
  bool is_judged(int rank) const { return member(static_cast<MemberId>(rank)).is_judged; }

  // How many ranks of the job have come to the end of their scripts in good order, as far as it is known here.
  int finished() const;
  // All ranks of the job have ended, or are evicted.
  bool is_over() const;

  // See Decision.
  bool may_end(bool needs_end) { return decision_->may_end(needs_end); }
  void serve_no_longer() { decision_->serve_no_longer(); }

  // Gives the ranks that have a session a notice.
  void drain(std::chrono::milliseconds grace);
  // Whether the rank has come to the end of init().
  bool has_session(int rank) const { return asked_.contains(static_cast<MemberId>(rank)); }
  // Whether it has left in good order: no rank waits for it, and it for none.
  bool has_left(int rank) const { return left_.contains(static_cast<MemberId>(rank)); }
  // After drain(): whether no rank of the job goes on or has ended its script without a notice.
  bool is_ended_by_notice() const;

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
  void end_job(const std::string& text);
  void tell(const std::vector<HostEvent>& events);
  void watch(MemberId id, const Descriptor& page);
  void look_at(MemberId id);
  void look();
  std::optional<MemberFigures> figures_of(MemberId id) const;
  const MemberView& member(MemberId id) const { return decision_->job().members.at(id); }
  void send(MemberId id, const GuardMessage& message);

  Orders orders_;
  struct ev_loop* const loop_;
  Timer look_;
  // Members whose processes may be ending, and how often their threads were looked at; kSeen: the end is known.
  std::map<MemberId, int> looks_;
  std::map<MemberId, std::unique_ptr<PacketSocket>> sockets_;
  std::map<MemberId, Asked> asked_;  // of the members that have sent a message
  std::set<MemberId> left_;
  Exits exits_;
  Timer exit_due_;
  std::unique_ptr<Decision> decision_;
  std::map<MemberId, std::unique_ptr<OwnerWatch>> watches_;
};

}  // namespace horo::tools
