// ElasticJob: the guard's side of an elastic job. It gives the Decision what the guard sees of its ranks and what they
// send, sends its messages, and returns what is left to do. docs/protocol.md has the protocol.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "elastic/exits.h"
#include "elastic/host_messages.h"
#include "tools/horo/run/child.h"
#include "tools/horo/run/decision.h"
#include "tools/horo/run/job_status.h"
#include "tools/horo/run/launcher.h"
#include "tools/horo/run/owner_watch.h"
#include "tools/horo/run/packet_socket.h"

namespace horo::tools {

// A rank that violates the protocol.
struct KillMember {
  MemberId id = 0;
};
// A member that was evicted asks for a place among the ranks again, in its process: answer with admit() or refuse().
struct MemberReturns {
  MemberId id = 0;
};
// What the supervisor must do. EndJob: the ranks were told, and end.
using GuardAction = std::variant<Say, EndJob, FailHost, KillMember, MemberReturns>;
using GuardActions = std::vector<GuardAction>;

class ElasticJob {
 public:
  // Takes the actions that no call returns. Called from the loop, also without any action if is_evicted() or
  // is_asking() may have changed.
  using Later = std::function<void(GuardActions)>;
  using Ending = std::function<std::optional<int>(MemberId)>;  // see status_of_ending()

  // make_decision: called once, with a function that this object has.
  using MakeDecision = std::function<std::unique_ptr<Decision>(Decision::Later)>;
  ElasticJob(struct ev_loop* loop, Later later, Ending ending, const MakeDecision& make_decision);

  // Makes the rank's socket and adds it to the program. The result stays open until the program has started.
  Descriptor connect(MemberId id, Program& program);

  // The rank's process has ended (a status of waitpid()), has stopped or continues. What it has sent counts before.
  GuardActions on_end(MemberId id, int status);
  GuardActions on_stop(MemberId id, bool is_stopped);

  // ---- Processes that are started later, in a job of one host.

  MemberId next_id() const { return static_cast<MemberId>(decision_->job().members.size()); }
  // The process with next_id() has started after connect(), or could not be started.
  GuardActions on_started(MemberId id);
  // The job is parked, and no process is started.
  GuardActions on_none_is_started();
  bool is_parked() const { return decision_->job().is_parked; }
  void disconnect(MemberId id) { sockets_.erase(id); }
  // The process of this member, which returns, is that with next_id() from now on.
  GuardActions admit(MemberId id);
  void refuse(MemberId id) { returning_.erase(id); }
  bool can_grow() const { return decision_->can_grow(); }
  bool was_growth_offered() const { return was_growth_offered_; }  // a member has said that the script can grow
  // A process of the start, or one that has joined and got the state of the others.
  bool has_joined(MemberId id) const { return id < size_ || joined_.contains(id); }
  // The job goes on without it: it is out, and in no epoch that others could run in.
  bool is_gone(MemberId id) const;
  bool is_out(MemberId id) const { return member(id).is_out; }
  bool has_ended_in_order(MemberId id) const { return member(id).state.word == "left"; }

  bool is_evicted(MemberId id) const { return member(id).is_evicted; }
  // Whether the job's exit code depends on that of this rank.
  bool is_judged(MemberId id) const { return member(id).is_judged; }

  // How many ranks of the job have come to the end of their scripts in good order, as far as it is known here.
  int finished() const;
  // All ranks of the job have ended, or are evicted.
  bool is_over() const;

  // See Decision.
  bool may_end(bool needs_end) { return decision_->may_end(needs_end); }
  void serve_no_longer() { decision_->serve_no_longer(); }

  // Gives the ranks that have a session a notice.
  GuardActions drain(std::chrono::milliseconds grace);
  // Whether the rank has come to the end of init(), and does not only wait to join.
  bool has_session(MemberId id) const;
  // Whether it has left in good order: no rank waits for it, and it for none.
  bool has_left(MemberId id) const { return left_.contains(id); }
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

  class Call;

  void take(MemberId id, const MemberMessage& message);
  void ended(MemberId id, int status);
  void carry_out(DecisionActions actions);
  void carry_out(SendToMember& action) { send(action.id, *action.message); }
  void carry_out(EndJob& action);
  template <class Action>
  void carry_out(Action& action) {
    actions_.emplace_back(std::move(action));
  }
  void flush();
  void tell(const std::vector<HostEvent>& events);
  void add_socket(MemberId id, Descriptor end);
  void take_descriptor(MemberId id, Descriptor passed);
  void look_at(MemberId id);
  void look();
  std::optional<MemberFigures> figures_of(MemberId id) const;
  const MemberView& member(MemberId id) const { return decision_->job().members.at(id); }
  void send(MemberId id, const GuardMessage& message);

  const Later later_;
  const Ending ending_;
  struct ev_loop* const loop_;
  GuardActions actions_;    // since the last ones were handed over
  bool is_called_ = false;  // by the supervisor, which takes the actions as a result
  Timer look_;
  // Members whose processes may be ending, and how often their threads were looked at; kSeen: the end is known.
  std::map<MemberId, int> looks_;
  std::map<MemberId, std::unique_ptr<PacketSocket>> sockets_;
  std::map<MemberId, Asked> asked_;           // of the members that have sent a message
  std::map<MemberId, Descriptor> returning_;  // the end of the socket that a member which returns has passed
  std::set<MemberId> left_;
  std::set<MemberId> joined_;  // of those that were started later
  bool was_growth_offered_ = false;
  Exits exits_;
  Timer exit_due_;
  std::unique_ptr<Decision> decision_;
  const MemberId size_;  // of the job at the start
  std::map<MemberId, std::unique_ptr<OwnerWatch>> watches_;
};

}  // namespace horo::tools
