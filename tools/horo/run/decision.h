// Decision: where it is decided which processes are the members of an elastic job. In the guard itself, if the job has
// one host; else in the job's rendezvous.
#pragma once

#include <functional>
#include <memory>

#include "elastic/host_messages.h"
#include "elastic/membership.h"
#include "tools/horo/run/events.h"
#include "tools/horo/run/launcher.h"

namespace horo::tools {

// What a Decision asks of its owner. All are called from the loop or from take().
struct DecisionOrders {
  std::function<void(MemberId id, GuardMessage message)> send;  // to a member of this host
  std::function<void(const std::string& text)> say;             // a line of the story
  std::function<void(const std::string& text)> end_job;         // the job cannot go on
  std::function<void()> changed;                                // job() may have changed
};

class Decision {
 public:
  virtual ~Decision() = default;
  // Something has happened to a member of this host.
  virtual void take(const HostEvent& event) = 0;
  // The state of the job, as far as it is known here.
  virtual const JobView& job() const = 0;
};

// `launch` outlives the result.
std::unique_ptr<Decision> make_local_decision(struct ev_loop* loop, const Launch& launch, DecisionOrders orders);

JobSpec spec_of(const Launch& launch);

}  // namespace horo::tools
