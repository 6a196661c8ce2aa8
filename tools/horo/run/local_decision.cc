#include <algorithm>
#include <chrono>
#include <utility>

#include "elastic/awake_membership.h"
#include "elastic/view_secrets.h"
#include "horo/base/time.h"
#include "tools/horo/run/decision.h"

namespace horo::tools {
namespace {

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

MembershipConfig config_of(const Launch& launch) {
  const JobSpec spec = spec_of(launch);
  MembershipConfig config;
  config.members = static_cast<int>(spec.members());
  config.min_members = static_cast<int>(spec.min_members);
  config.silence_limit = spec.silence_limit;
  config.park_timeout = spec.park_timeout;
  const bool may_grow = launch.restarts > 0 || launch.max_ranks > launch.size();
  if (may_grow) config.max_members = launch.max_ranks;
  return config;
}

class LocalDecision final : public Decision {
 public:
  LocalDecision(struct ev_loop* loop, const Launch& launch, Later later)
      : later_(std::move(later)),
        membership_(config_of(launch)),
        job_(job_view_of(membership_.real(), membership_.real().processes())),
        timer_(loop, [this] { later_(handle(TimePassed{})); }) {}

  DecisionActions take(const HostEvent& event) override {
    return std::visit([this](const auto& one) { return handle(one); }, event);
  }

  DecisionActions on_started(MemberId id) override { return handle(MemberStarted{id}); }
  DecisionActions on_none_is_started() override { return handle(NoneIsStarted{}); }
  bool can_grow() const override { return membership_.real().can_grow(); }
  const JobView& job() const override { return job_; }
  bool may_end(bool) override { return true; }

 private:
  DecisionActions handle(const MembershipEvent& event) {
    std::vector<MembershipAction> decided = membership_.on(event, Clock::now());
    job_ = job_view_of(membership_.real(), membership_.real().processes());
    DecisionActions actions;
    for (MembershipAction& action : decided) {
      if (auto* sent = std::get_if<SendToMember>(&action)) sent->message = secrets_.with_secret(sent->message);
      std::visit([&actions](auto& one) { actions.emplace_back(std::move(one)); }, action);
    }
    set_timer();
    return actions;
  }

  void set_timer() {
    const auto next = membership_.next_deadline();
    if (!next) return timer_.stop();
    const std::chrono::duration<double> wait = *next - Clock::now();
    timer_.set(std::max(wait.count(), 0.0) + 0.001);  // libev's clock may be behind
  }

  const Later later_;
  AwakeMembership membership_;
  JobView job_;
  Timer timer_;
  ViewSecrets secrets_;
};

}  // namespace

std::unique_ptr<Decision> make_local_decision(struct ev_loop* loop, const Launch& launch, Decision::Later later) {
  return std::make_unique<LocalDecision>(loop, launch, std::move(later));
}

JobSpec spec_of(const Launch& launch) {
  JobSpec spec;
  for (const int ranks : launch.ranks_by_host) spec.ranks_by_host.push_back(static_cast<std::uint32_t>(ranks));
  spec.min_members = static_cast<std::uint32_t>(launch.min_ranks);
  spec.silence_limit = milliseconds_of(launch.evict_after_s);
  spec.park_timeout = milliseconds_of(launch.park_timeout_s);
  return spec;
}

}  // namespace horo::tools
