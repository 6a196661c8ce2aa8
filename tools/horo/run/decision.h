// Decision: where it is decided which processes are the members of an elastic job. In the guard itself, if the job has
// one host; else in the job's rendezvous.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "elastic/host_messages.h"
#include "elastic/membership.h"
#include "tools/horo/run/events.h"
#include "tools/horo/run/launcher.h"
#include "tools/horo/run/output.h"

namespace horo::tools {

// The job goes on without this host, which has failed.
struct FailHost {
  std::string text;
};
// What a Decision asks of its owner; messages are for members of this host.
using DecisionAction = std::variant<SendToMember, Say, EndJob, FailHost>;
using DecisionActions = std::vector<DecisionAction>;

class Decision {
 public:
  // Takes the actions that no call returns: those of a timer or of an agent. Called from the loop, also without any
  // action if job() may have changed.
  using Later = std::function<void(DecisionActions)>;

  virtual ~Decision() = default;
  // Something has happened to a member of this host. job() may have changed afterwards.
  virtual DecisionActions take(const HostEvent& event) = 0;
  // The guard has started a process that may join. Its id is the number of members in job() before. One host only.
  virtual DecisionActions on_started(MemberId) { return {}; }
  // No process is started in the places of those that are lost, or not for long. One host only.
  virtual DecisionActions on_none_is_started() { return {}; }
  // Whether the members can go on with a process that is started now.
  virtual bool can_grow() const { return false; }
  // The state of the job, as far as it is known here.
  virtual const JobView& job() const = 0;
  // The ranks of this host have ended: whether job() is final for them, or will not become it, and this process serves
  // no other host. If not, Later is called when that may have changed. needs_end: also that of the other ranks must
  // have ended, which decides whether the job has survived a failure here.
  virtual bool may_end(bool needs_end) = 0;
  // From now on may_end() does not wait for the ranks of other hosts.
  virtual void serve_no_longer() {}
};

// For the processes that serve a job on several hosts.
struct ServiceOptions {
  int key_fd = -1;                 // the job's key
  StreamWriter* output = nullptr;  // gets what they print
};

// `launch` outlives the results. The first throws nothing; the second throws as start() does (child.h).
std::unique_ptr<Decision> make_local_decision(struct ev_loop* loop, const Launch& launch, Decision::Later later);

std::unique_ptr<Decision> make_remote_decision(struct ev_loop* loop, const Launch& launch,
                                               const ServiceOptions& services, Decision::Later later);

JobSpec spec_of(const Launch& launch);

}  // namespace horo::tools
