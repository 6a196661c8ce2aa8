#include "tools/horo/run/elastic_job.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>

#include "elastic/texts.h"
#include "horo/base/time.h"
#include "tools/horo/run/verdict.h"

namespace horo::tools {
namespace {

constexpr double kLookSeconds = 0.002;
constexpr int kMostLooks = 500;

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

MembershipConfig config_of(const Launch& launch) {
  MembershipConfig config;
  config.members = launch.size();
  config.min_members = launch.min_ranks;
  config.silence_limit = milliseconds_of(launch.evict_after_s);
  config.park_timeout = milliseconds_of(launch.park_timeout_s);
  return config;
}

}  // namespace

ElasticJob::ElasticJob(struct ev_loop* loop, const Launch& launch, Orders orders)
    : orders_(std::move(orders)),
      loop_(loop),
      membership_(config_of(launch)),
      timer_(loop, [this] { take(TimePassed{}); }),
      look_(loop, [this] { look_at_missed(); }) {}

Descriptor ElasticJob::connect(int rank, Program& program) {
  const auto id = static_cast<MemberId>(rank);
  GuardSocketPair pair = make_guard_socket_pair();
  program.inherited_fds.push_back(pair.members.get());
  program.environment.push_back("HORO_GUARD_FD=" + std::to_string(pair.members.get()));
  sockets_[id] = std::make_unique<GuardSocket>(
      loop_, std::move(pair.guards), [this, id](const MemberMessage& message) { take(id, message); },
      [this, id, rank](const std::string& why) {
        orders_.say("rank " + std::to_string(id) + " is killed: " + printable(why));
        orders_.kill(rank);
      });
  return std::move(pair.members);
}

void ElasticJob::on_end(int rank, int status) {
  const auto id = static_cast<MemberId>(rank);
  if (const auto socket = sockets_.find(id); socket != sockets_.end()) socket->second->read_all();
  take(MemberEnded{id, code_of(status) == 0, status_text(status)});
}

void ElasticJob::on_stop(int rank, bool is_stopped) {
  const auto id = static_cast<MemberId>(rank);
  take(is_stopped ? MembershipEvent(MemberStopped{id}) : MembershipEvent(MemberContinued{id}));
}

bool ElasticJob::is_judged(int rank) const {
  const auto judged = membership_.judged_members();
  return std::find(judged.begin(), judged.end(), static_cast<MemberId>(rank)) != judged.end();
}

// A report is not evidence of anything.
void ElasticJob::take(MemberId id, const MemberMessage& message) {
  Asked& asked = asked_[id];
  asked.may_ask = true;
  const auto* report = std::get_if<Report>(&message);
  if (report == nullptr) {
    take(MemberSent{id, message});
    const auto* frozen = std::get_if<Frozen>(&message);
    if (frozen == nullptr || !frozen->lost || !sockets_.contains(*frozen->lost)) return;
    missed_ = frozen->lost;
    looks_ = 0;
    return look_at_missed();
  }
  asked.report = *report;
  asked.answered = Clock::now();
  asked.is_due = false;
  orders_.changed();
}

// The others see the death of a process before the kernel has freed its memory, and do not wait for that. If it ends in
// good order, its end is soon enough.
void ElasticJob::look_at_missed() {
  if (!missed_ || membership_.is_out(*missed_) || ++looks_ > kMostLooks) return missed_.reset();
  const auto rank = static_cast<int>(*missed_);
  const std::optional<int> status = orders_.ending(rank);
  if (!status) return look_.set(kLookSeconds);
  missed_.reset();
  if (code_of(*status) != 0) on_end(rank, *status);
}

void ElasticJob::ask() {
  for (const auto& [id, socket] : sockets_) {
    if (!membership_.state_of(id).can_answer) continue;
    Asked& asked = asked_[id];
    asked.is_due = true;
    if (std::exchange(asked.may_ask, false)) send(id, Ask{});
  }
}

bool ElasticJob::is_asking() const {
  return std::any_of(asked_.begin(), asked_.end(), [this](const auto& asked) {
    return asked.second.is_due && membership_.state_of(asked.first).can_answer;
  });
}

std::optional<MemberFigures> ElasticJob::figures_of(MemberId id) const {
  const auto found = asked_.find(id);
  if (found == asked_.end() || !found->second.answered) return std::nullopt;
  const auto& [may_ask, is_due, report, answered] = found->second;
  const std::chrono::duration<double> age = Clock::now() - *answered;
  const bool is_answer = !is_due && membership_.state_of(id).can_answer;
  return MemberFigures{report.rounds, report.collectives, report.in_flight, report.oldest, age.count(), is_answer};
}

void ElasticJob::describe(JobStatus& status) const {
  status.epoch = membership_.epoch();
  status.is_parked = membership_.is_parked();
  const std::vector<MemberId>& view = membership_.members();
  for (MemberStatus& member : status.members) {
    const auto id = static_cast<MemberId>(member.id);
    const MemberState state = membership_.state_of(id);
    member.state = state.word;
    member.text = state.detail;
    member.figures = figures_of(id);
    const auto rank = std::find(view.begin(), view.end(), id) - view.begin();
    member.rank = membership_.is_out(id) ? std::nullopt : std::optional(static_cast<int>(rank));
  }
}

void ElasticJob::take(const MembershipEvent& event) {
  for (MembershipAction& action : membership_.on(event, Clock::now())) carry_out(action);
  orders_.changed();
  const auto next = membership_.next_deadline();
  if (!next) return timer_.stop();
  const std::chrono::duration<double> wait = *next - Clock::now();
  timer_.set(std::max(wait.count(), 0.0) + 0.001);  // libev's clock may be behind
}

void ElasticJob::carry_out(MembershipAction& action) {
  if (auto* sent = std::get_if<SendToMember>(&action)) send(sent->id, std::move(sent->message));
  if (const auto* told = std::get_if<Say>(&action)) orders_.say(told->text);
  if (const auto* end = std::get_if<EndJob>(&action)) orders_.end_job(end->text);
}

void ElasticJob::send(MemberId id, GuardMessage message) {
  if (auto* view = std::get_if<View>(&message)) {
    if (view->epoch != secret_epoch_) secret_ = make_job_key();
    secret_epoch_ = view->epoch;
    view->secret = secret_;
  }
  sockets_.at(id)->send(encode(message));
}

}  // namespace horo::tools
