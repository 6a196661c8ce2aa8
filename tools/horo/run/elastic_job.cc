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

}  // namespace

ElasticJob::ElasticJob(struct ev_loop* loop, Orders orders, const MakeDecision& make_decision)
    : orders_(std::move(orders)),
      loop_(loop),
      look_(loop, [this] { look_at_missed(); }),
      decision_(
          make_decision({[this](MemberId id, const GuardMessage& message) { send(id, message); },
                         [this](const std::string& text) { orders_.say(text); },
                         [this](const std::string& text) { orders_.end_job(text); }, [this] { orders_.changed(); }})) {}

Descriptor ElasticJob::connect(int rank, Program& program) {
  const auto id = static_cast<MemberId>(rank);
  PacketSocketPair pair = make_packet_socket_pair();
  program.inherited_fds.push_back(pair.others.get());
  program.environment.push_back("HORO_GUARD_FD=" + std::to_string(pair.others.get()));
  sockets_[id] = std::make_unique<PacketSocket>(
      loop_, std::move(pair.guards),
      [this, id](std::span<const std::byte> message) { take(id, decode_member_message(message)); },
      [this, id, rank](const std::string& why) {
        orders_.say("rank " + std::to_string(id) + " is killed: " + printable(why));
        orders_.kill(rank);
      });
  return std::move(pair.others);
}

void ElasticJob::on_end(int rank, int status) {
  const auto id = static_cast<MemberId>(rank);
  if (const auto socket = sockets_.find(id); socket != sockets_.end()) socket->second->read_all();
  decision_->take(MemberEnded{id, code_of(status) == 0, status_text(status)});
}

void ElasticJob::on_stop(int rank, bool is_stopped) {
  const auto id = static_cast<MemberId>(rank);
  decision_->take(is_stopped ? HostEvent(MemberStopped{id}) : HostEvent(MemberContinued{id}));
}

// A report is not evidence of anything.
void ElasticJob::take(MemberId id, const MemberMessage& message) {
  Asked& asked = asked_[id];
  asked.may_ask = true;
  const auto* report = std::get_if<Report>(&message);
  if (report == nullptr) {
    decision_->take(MemberSent{id, message});
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
  if (!missed_ || member(*missed_).is_out || ++looks_ > kMostLooks) return missed_.reset();
  const auto rank = static_cast<int>(*missed_);
  const std::optional<int> status = orders_.ending(rank);
  if (!status) return look_.set(kLookSeconds);
  missed_.reset();
  if (code_of(*status) != 0) on_end(rank, *status);
}

void ElasticJob::ask() {
  for (const auto& [id, socket] : sockets_) {
    if (!member(id).state.can_answer) continue;
    Asked& asked = asked_[id];
    asked.is_due = true;
    if (std::exchange(asked.may_ask, false)) send(id, Ask{});
  }
}

bool ElasticJob::is_asking() const {
  return std::any_of(asked_.begin(), asked_.end(),
                     [this](const auto& asked) { return asked.second.is_due && member(asked.first).state.can_answer; });
}

std::optional<MemberFigures> ElasticJob::figures_of(MemberId id) const {
  const auto found = asked_.find(id);
  if (found == asked_.end() || !found->second.answered) return std::nullopt;
  const auto& [may_ask, is_due, report, answered] = found->second;
  const std::chrono::duration<double> age = Clock::now() - *answered;
  const bool is_answer = !is_due && member(id).state.can_answer;
  return MemberFigures{report.rounds, report.collectives, report.in_flight, report.oldest, age.count(), is_answer};
}

void ElasticJob::describe(JobStatus& status) const {
  const JobView& job = decision_->job();
  status.epoch = job.epoch;
  status.is_parked = job.is_parked;
  for (MemberStatus& one : status.members) {
    const auto id = static_cast<MemberId>(one.id);
    one.state = member(id).state.word;
    one.text = member(id).state.detail;
    one.figures = figures_of(id);
    const auto rank = std::find(job.ranks.begin(), job.ranks.end(), id) - job.ranks.begin();
    one.rank = member(id).is_out ? std::nullopt : std::optional(static_cast<int>(rank));
  }
}

void ElasticJob::send(MemberId id, const GuardMessage& message) {
  if (const auto socket = sockets_.find(id); socket != sockets_.end()) socket->second->send(encode(message));
}

}  // namespace horo::tools
