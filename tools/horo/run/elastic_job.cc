#include "tools/horo/run/elastic_job.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "elastic/rejoin.h"
#include "elastic/texts.h"
#include "horo/base/error.h"
#include "horo/base/time.h"
#include "tools/horo/run/verdict.h"

namespace horo::tools {
namespace {

constexpr double kLookSeconds = 0.002;
constexpr int kMostLooks = 500;
constexpr int kSeen = -1;

}  // namespace

// The supervisor's call of a function that may have actions: it returns them.
class ElasticJob::Call {
 public:
  explicit Call(ElasticJob& job) : job_(job) { job_.is_called_ = true; }
  ~Call() { job_.is_called_ = false; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  GuardActions actions() { return std::exchange(job_.actions_, {}); }

 private:
  ElasticJob& job_;
};

ElasticJob::ElasticJob(struct ev_loop* loop, Later later, Ending ending, const MakeDecision& make_decision)
    : later_(std::move(later)),
      ending_(std::move(ending)),
      loop_(loop),
      look_(loop,
            [this] {
              look();
              flush();
            }),
      exit_due_(loop,
                [this] {
                  tell(exits_.pass_time(Clock::now()));
                  flush();
                }),
      decision_(make_decision([this](DecisionActions actions) {
        carry_out(std::move(actions));
        flush();
      })),
      size_(next_id()) {}

void ElasticJob::flush() {
  if (!is_called_) later_(std::exchange(actions_, {}));
}

void ElasticJob::carry_out(DecisionActions actions) {
  for (DecisionAction& action : actions) std::visit([this](auto& one) { carry_out(one); }, action);
}

Descriptor ElasticJob::connect(MemberId id, Program& program) {
  PacketSocketPair pair = make_packet_socket_pair();
  program.inherited_fds.push_back(pair.others.get());
  program.environment.push_back("HORO_GUARD_FD=" + std::to_string(pair.others.get()));
  add_socket(id, std::move(pair.guards));
  return std::move(pair.others);
}

void ElasticJob::add_socket(MemberId id, Descriptor end) {
  sockets_[id] = std::make_unique<PacketSocket>(
      loop_, std::move(end),
      [this, id](std::span<const std::byte> message) {
        take(id, decode_member_message(message));
        flush();
      },
      [this, id](const std::string& why) {
        actions_.emplace_back(Say{"rank " + std::to_string(id) + " is killed: " + printable(why)});
        actions_.emplace_back(KillMember{id});
        flush();
      });
  sockets_[id]->set_on_descriptor([this, id](Descriptor passed) { take_descriptor(id, std::move(passed)); });
}

// The first one is that of the page with the owner word: the death of a member is seen at once, without another member
// that misses it. A second one is the socket of a member that returns; it is closed if the member may not.
void ElasticJob::take_descriptor(MemberId id, Descriptor passed) {
  if (is_evicted(id) && !returning_.contains(id) && take_packet_socket(passed)) {
    returning_[id] = std::move(passed);
    actions_.emplace_back(MemberReturns{id});
    return flush();
  }
  if (watches_.contains(id)) return;
  watches_[id] = std::make_unique<OwnerWatch>(loop_, OwnerPage::map(passed.get()), [this, id] {
    look_at(id);
    flush();
  });
}

GuardActions ElasticJob::on_end(MemberId id, int status) {
  Call call(*this);
  ended(id, status);
  return call.actions();
}

void ElasticJob::ended(MemberId id, int status) {
  if (const auto socket = sockets_.find(id); socket != sockets_.end()) socket->second->read_all();
  tell(exits_.on(MemberEnded{id, code_of(status) == 0, status_text(status)}, Clock::now()));
}

void ElasticJob::tell(const std::vector<HostEvent>& events) {
  for (const HostEvent& event : events) carry_out(decision_->take(event));
  const auto due = exits_.next_deadline();
  if (!due) return exit_due_.stop();
  const std::chrono::duration<double> wait = *due - Clock::now();
  exit_due_.set(std::max(wait.count(), 0.0) + 0.001);  // libev's clock may be behind
}

GuardActions ElasticJob::on_stop(MemberId id, bool is_stopped) {
  Call call(*this);
  carry_out(decision_->take(is_stopped ? HostEvent(MemberStopped{id}) : HostEvent(MemberContinued{id})));
  return call.actions();
}

GuardActions ElasticJob::on_started(MemberId id) {
  Call call(*this);
  carry_out(decision_->on_started(id));
  return call.actions();
}

GuardActions ElasticJob::on_none_is_started() {
  Call call(*this);
  carry_out(decision_->on_none_is_started());
  return call.actions();
}

GuardActions ElasticJob::admit(MemberId id) {
  Call call(*this);
  const MemberId next = next_id();
  add_socket(next, std::move(returning_.at(id)));
  returning_.erase(id);
  sockets_[next]->send(encode_admission(next));
  carry_out(decision_->on_started(next));
  return call.actions();
}

bool ElasticJob::is_gone(MemberId id) const {
  const JobView& job = decision_->job();
  const bool has_rank = std::binary_search(job.ranks.begin(), job.ranks.end(), id);
  return member(id).is_out && (!has_rank || job.is_parked);
}

bool ElasticJob::has_session(MemberId id) const {
  const bool has_rank = std::binary_search(decision_->job().ranks.begin(), decision_->job().ranks.end(), id);
  return asked_.contains(id) && (id < size_ || has_rank);
}

// Calls that wait fail with the reason. A rank that has left in good order has none, and may write its results.
void ElasticJob::carry_out(EndJob& action) {
  for (const auto& [id, socket] : sockets_) {
    if (!left_.contains(id)) send(id, Evicted{action.text});
  }
  actions_.emplace_back(std::move(action));
}

// A report is not evidence of anything.
void ElasticJob::take(MemberId id, const MemberMessage& message) {
  Asked& asked = asked_[id];
  asked.may_ask = true;
  const auto* leave = std::get_if<Leave>(&message);
  if (leave != nullptr && !leave->failed) left_.insert(id);
  if (std::holds_alternative<CanGrow>(message)) was_growth_offered_ = true;
  if (std::holds_alternative<Synced>(message) && id >= size_) joined_.insert(id);
  const auto* report = std::get_if<Report>(&message);
  if (report == nullptr) {
    tell(exits_.on(MemberSent{id, message}, Clock::now()));
    const auto* frozen = std::get_if<Frozen>(&message);
    if (frozen != nullptr && frozen->lost && sockets_.contains(*frozen->lost)) look_at(*frozen->lost);
    return;
  }
  asked.report = *report;
  asked.answered = Clock::now();
  asked.is_due = false;
}

// The owner word of a process, or another member, shows its death before the kernel has freed its memory, and the job
// does not wait for that. The word is no proof: a thread may end alone, and exec ends all but one.
void ElasticJob::look_at(MemberId id) {
  int& looks = looks_[id];
  if (looks != kSeen) looks = 0;
  look();
}

// If a process ends in good order, its end is soon enough. Its exit code may be 0 here because it is not set yet.
void ElasticJob::look() {
  std::map<MemberId, int> seen;  // ended() may add others to looks_
  bool is_one_open = false;
  for (auto& [id, looks] : looks_) {
    if (looks == kSeen || looks == kMostLooks) continue;
    const std::optional<int> status = member(id).is_out ? std::nullopt : ending_(id);
    looks = member(id).is_out || status ? kSeen : looks + 1;
    is_one_open = is_one_open || looks != kSeen;
    if (status && code_of(*status) != 0) seen[id] = *status;
  }
  if (is_one_open) look_.set(kLookSeconds);
  for (const auto& [id, status] : seen) ended(id, status);
}

GuardActions ElasticJob::drain(std::chrono::milliseconds grace) {
  Call call(*this);
  const Drain notice{static_cast<std::uint32_t>(grace.count())};
  for (const auto& [id, socket] : sockets_) {
    if (member(id).is_out || !has_session(id)) continue;
    send(id, notice);
    carry_out(decision_->take(MemberDrained{id}));
  }
  return call.actions();
}

int ElasticJob::finished() const {
  const std::vector<MemberView>& members = decision_->job().members;
  int finished = 0;
  for (MemberId id = 0; id < members.size(); ++id) {
    if (members[id].state.word == "left" && has_joined(id)) ++finished;
  }
  return finished;
}

bool ElasticJob::is_over() const {
  const std::vector<MemberView>& members = decision_->job().members;
  return std::all_of(members.begin(), members.end(), [](const MemberView& one) { return one.is_out; });
}

bool ElasticJob::is_ended_by_notice() const {
  const std::vector<MemberView>& members = decision_->job().members;
  return std::all_of(members.begin(), members.end(), [](const MemberView& one) {
    const bool is_lost = one.is_out && one.state.word != "left";
    return is_lost || one.state.detail == kDrained;
  });
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
    const auto rank = std::find(job.ranks.begin(), job.ranks.end(), id);
    one.rank.reset();
    if (!member(id).is_out && rank != job.ranks.end()) one.rank = static_cast<int>(rank - job.ranks.begin());
  }
}

void ElasticJob::send(MemberId id, const GuardMessage& message) {
  if (const auto socket = sockets_.find(id); socket != sockets_.end()) socket->second->send(encode(message));
}

}  // namespace horo::tools
