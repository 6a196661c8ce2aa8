// What `horo status` shows of the job. Nothing is gathered unless a client asks.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <system_error>

#include "horo/base/log.h"
#include "tools/horo/run/progress_text.h"
#include "tools/horo/run/status_folder.h"
#include "tools/horo/run/supervisor.h"

namespace horo::tools {
namespace {

constexpr double kAnswerSeconds = 0.5;  // for the answers of the members

}  // namespace

// A job runs also where there is no place for the socket.
void RankSupervisor::open_status() {
  const uid_t owner = ::geteuid();
  std::string faults;
  for (const std::string& folder : status_folders(std::getenv("XDG_RUNTIME_DIR"), owner)) {
    std::string fault = make_private_folder(folder, owner);
    if (fault.empty()) {
      try {
        const StatusAccess access{socket_path(folder, ::getpid()), owner};
        status_ = std::make_unique<StatusServer>(loop_, access,
                                                 StatusOrders{[this](StatusQuestion question) { on_asked(question); },
                                                              [this](int ranks) { return resize(ranks); }});
        if (launch_.verbose) say("job " + std::to_string(::getpid()) + ": horo status shows its state");
        return;
      } catch (const std::system_error& error) {
        fault = error.what();
      }
    }
    faults += (faults.empty() ? "" : "; ") + fault;
  }
  log_debug("horo status cannot show this job: " + faults);
}

void RankSupervisor::on_asked(StatusQuestion question) {
  if (question == StatusQuestion::kWhy) {
    why_.ask();
    return answer_why();
  }
  if (elastic_) elastic_->ask();
  if (!answers_due_.is_set()) answers_due_.set(kAnswerSeconds);
  answer_status();
}

// When all members have answered, or their time is over.
void RankSupervisor::answer_status() {
  if (!status_ || !status_->is_asked(StatusQuestion::kStatus)) return;
  if (elastic_ && elastic_->is_asking() && answers_due_.is_set()) return;
  answers_due_.stop();
  status_->answer(StatusQuestion::kStatus, to_json(job_status()));
}

// When rank 0 has answered, or its time is over.
void RankSupervisor::answer_why() {
  if (!status_ || !status_->is_asked(StatusQuestion::kWhy)) return why_.stop();
  std::map<int, int> slots;  // by number of the rank
  for (const auto& [id, rank] : ranks_) {
    if (rank.is_running) slots[static_cast<int>(id)] = rank.slot.local_rank;
  }
  const std::optional<JobWaits> found = why_.answer(job_status(), slots);
  if (found) status_->answer(StatusQuestion::kWhy, to_json(*found));
}

// The line is none of the story: `horo status` has figures of its own.
void RankSupervisor::tell_progress() {
  progress_.set(launch_.progress_s);
  JobStatus status = job_status();
  if (launch_.host > 0) {  // the first host has the steps of all
    std::erase_if(status.members, [](const MemberStatus& member) { return member.pid == 0; });
    status.size = status.ranks;
  } else if (!elastic_) {
    steps_.add_others(status, Clock::now());
  }
  errors_->write(launch_.title + ": " + progress_text(status) + "\n");
}

// The decision tells the states of all members. Their processes are known on their own hosts, and a process that has
// joined again has its new number.
void RankSupervisor::add_other_members(JobStatus& status) const {
  for (MemberId id = 0; id < elastic_->next_id(); ++id) {
    const int number = static_cast<int>(id);
    if (!ranks_.contains(id)) status.members.push_back({number, number, 0, "", "", {}});
  }
  std::sort(status.members.begin(), status.members.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
}

JobStatus RankSupervisor::job_status() const {
  JobStatus status;
  status.job = ::getpid();
  status.process = ::getppid();
  status.title = launch_.title;
  status.command = launch_.command;
  status.started_s = started_s_;
  status.age_s = std::chrono::duration<double>(Clock::now() - started_).count();
  status.ranks = launch_.ranks();
  status.size = launch_.size();
  for (const auto& [id, rank] : ranks_) {
    MemberStatus member{rank.end.rank, rank.end.rank, rank.pid, rank.is_stopped ? "stopped" : "running", "", {}};
    if (!rank.is_running) {
      member.rank.reset();
      member.state = code_of(rank.end.status) == 0 ? "left" : "died";
      member.text = status_text(rank.end.status);
    }
    status.members.push_back(std::move(member));
  }
  if (elastic_) {
    status.min_ranks = launch_.min_ranks;
    status.slots = respawns_ ? respawns_->slots() : launch_.size();
    add_other_members(status);
    elastic_->describe(status);
  }
  if (const RunTable* table = world_.table(); table != nullptr && table->checkpoints().count > 0)
    status.checkpoint = table->checkpoints().last_step;
  steps_.describe(status, Clock::now());
  status.story.assign(story_.lines().begin(), story_.lines().end());
  status.dropped = story_.dropped();
  return status;
}

}  // namespace horo::tools
