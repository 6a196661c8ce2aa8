// One libev loop handles all events: the end of a rank, data in a pipe, a signal, a timeout. A rank is finished when
// its process has ended and its pipes are closed. Other processes of its group then have one second to end.
#include "tools/horo/run/supervisor.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tools/horo/machine/cores.h"
#include "tools/horo/run/child.h"
#include "tools/horo/run/ending.h"
#include "tools/horo/run/host_start.h"
#include "tools/horo/run/lines.h"

namespace horo::tools {
namespace {

constexpr double kTermSeconds = 3;      // from SIGTERM to SIGKILL
constexpr double kLeftoverSeconds = 1;  // from a rank's end to SIGKILL for the rest of its process group
constexpr int kTimeoutCode = 124;       // the exit code of timeout(1)
constexpr std::array kEnding = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array kForwardedOnly = {SIGUSR1, SIGUSR2};

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

bool is_one_file(int a, int b) {
  struct stat one {
  }, other{};
  return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

// "12 s", "0.5 s".
std::string seconds_text(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text + " s";
}

}  // namespace

RankSupervisor::Rank::Rank(RankSupervisor& job, MemberId member, const RankSlot& place, Child child)
    : id(member),
      slot(place),
      pid(child.pid),
      output(job.loop_, std::move(child.output), job.destinations_of(id, false)),
      errors(job.loop_, std::move(child.errors), job.destinations_of(id, true)),
      leftovers(job.loop_, [this, &job] { job.end_leftovers(*this); }),
      ended(
          job.loop_, pid, [this, &job](int status) { job.on_end(*this, status); }, job.on_stop_of(*this)) {
  end.rank = static_cast<int>(id);
}

RankSupervisor::RankSupervisor(const Launch& launch, const LocalWorld& world, int lifeline_fd)
    : launch_(launch),
      world_(world),
      loop_(::ev_default_loop(0)),
      host_(host_name()),
      output_(std::make_unique<StreamWriter>(loop_, 1, [this] { on_writer(); })),
      own_errors_(is_one_file(1, 2) ? nullptr : std::make_unique<StreamWriter>(loop_, 2, [this] { on_writer(); })),
      errors_(own_errors_ ? own_errors_.get() : output_.get()),
      input_(launch.passes_input ? make_input() : nullptr),
      lifeline_(loop_, lifeline_fd, EV_READ,
                [this] {
                  signal_running(SIGKILL);
                  code_ = 128 + SIGKILL;
                  ::ev_break(loop_, EVBREAK_ALL);
                }),
      grace_(loop_, [this] { on_grace_over(); }),
      notice_(loop_, [this] { on_notice_over(); }),
      timeout_(loop_, [this] { on_timeout(); }),
      answers_due_(loop_, [this] { answer_status(); }),
      progress_(loop_, [this] { tell_progress(); }),
      elastic_(launch.min_ranks > 0 ? make_elastic() : nullptr),
      respawns_(make_respawns()),
      joiners_due_(loop_, [this] { check_end(); }),
      steps_(world.table(), launch.ranks_by_host),
      why_(loop_, world.table(), [this] { answer_why(); }) {
  lifeline_.start();
  for (const int signal : kEnding) signals_.emplace_back(loop_, signal, [this](int number) { on_signal(number); });
  for (const int signal : kForwardedOnly) {
    signals_.emplace_back(loop_, signal, [this](int number) {
      for (const auto& [id, rank] : ranks_) {
        if (rank.is_running) ::kill(rank.pid, number);
      }
    });
  }
  ::signal(SIGPIPE, SIG_IGN);  // a closed reader is detected by write()
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

RankSupervisor::~RankSupervisor() {
  signal_running(SIGKILL);
}

int RankSupervisor::run() {
  open_status();
  try {
    start_ranks();
  } catch (const StartFailed& failed) {
    signal_running(SIGKILL);
    say(failed.what());
    code_ = failed.exit_code();
    is_concluded_ = true;
    if (errors_->is_empty()) return *code_;
  }
  if (launch_.timeout_s > 0) timeout_.set(launch_.timeout_s);
  if (launch_.progress_s > 0) progress_.set(launch_.progress_s);
  ::ev_run(loop_, 0);
  return code_.value_or(0);
}

void RankSupervisor::make_files_of(MemberId id) {
  if (launch_.output_dir.empty()) return;
  const auto rank = static_cast<int>(id);
  const auto make = [&](const char* ending) {
    return make_rank_file(launch_.output_dir, rank, ending, launch_.goes_on);
  };
  files_[id] = {make(".out"), make(".err")};
}

void RankSupervisor::start_ranks() {
  const auto first = static_cast<MemberId>(launch_.first_rank());
  const auto end = first + static_cast<MemberId>(launch_.ranks());
  for (MemberId id = first; id < end; ++id) make_files_of(id);  // a job that cannot write them all runs nothing
  for (MemberId id = first; id < end; ++id) start_rank(id, world_.slot(static_cast<int>(id - first)));
  are_all_started_ = true;
}

void RankSupervisor::start_rank(MemberId id, const RankSlot& slot) {
  const auto number = static_cast<int>(id);
  Program program{launch_.command, world_.environment(slot, number), {world_.key_fd()}, launch_.cwd, slot.cores};
  program.must_bind = launch_.binding == CoreBinding::kCore;
  const Descriptor socket = elastic_ ? elastic_->connect(id, program) : Descriptor();
  if (RunTable* table = world_.table()) {
    table->clear(slot.local_rank);
    table->describe(slot.local_rank, program.environment);
    program.inherited_fds.push_back(table->fd());
    program.process_word = &table->process_word(slot.local_rank);
  }
  const Descriptor input = input_ && !world_.joins(number) ? input_->add_rank(number) : Descriptor();
  program.input = input.get();
  Child child = start(program);
  if (launch_.verbose) {
    say("rank " + std::to_string(id) + ": process " + std::to_string(child.pid) +
        (program.cores.empty() ? "" : ", cores " + cores_text(program.cores)));
  }
  ranks_.try_emplace(id, *this, id, slot, std::move(child));
  steps_.started(number, slot.local_rank);
}

std::string RankSupervisor::prefix_of(MemberId id) const {
  return launch_.prefixed ? "[" + std::to_string(id) + "] " : "";
}

RankStream::Destinations RankSupervisor::destinations_of(MemberId id, bool is_errors) {
  RankStream::Destinations destinations;
  destinations.prefix = prefix_of(id);
  destinations.writer = is_errors ? errors_ : output_.get();
  RankFiles& files = files_[id];
  destinations.file = std::move(is_errors ? files.errors : files.output);
  destinations.end = [this] { check_end(); };
  return destinations;
}

std::unique_ptr<JobInput> RankSupervisor::make_input() {
  JobInput::Orders orders;
  orders.say = [this](const std::string& text) { say(text); };
  orders.fail = [this](const std::string& text) {
    say(text);
    if (!code_) code_ = 1;
    if (!is_terminating_) terminate();
  };
  return std::make_unique<JobInput>(loop_, STDIN_FILENO, std::move(orders));
}

std::unique_ptr<ElasticJob> RankSupervisor::make_elastic() {
  const auto later = [this](const GuardActions& actions) {
    carry_out(actions);
    on_elastic_change();
    if (elastic_) check_end();
  };
  const auto ending = [this](MemberId id) { return status_of_ending_rank(id); };
  return std::make_unique<ElasticJob>(loop_, later, ending, [this](Decision::Later asked) {
    if (launch_.ranks_by_host.size() == 1) return make_local_decision(loop_, launch_, std::move(asked));
    return make_remote_decision(loop_, launch_, {world_.key_fd(), errors_}, std::move(asked));
  });
}

std::optional<int> RankSupervisor::status_of_ending_rank(MemberId id) {
  const auto found = ranks_.find(id);
  if (found == ranks_.end() || !found->second.is_running) return std::nullopt;
  const std::optional<int> status = status_of_ending(found->second.pid);
  if (status) tell_moment(found->second, "is ending");
  return status;
}

void RankSupervisor::carry_out(const GuardActions& actions) {
  for (const GuardAction& action : actions) std::visit([this](const auto& one) { carry_out(one); }, action);
}

void RankSupervisor::carry_out(const Say& told) {
  if (!is_interrupted_ && !is_terminating_) say(told.text);
}

void RankSupervisor::carry_out(const FailHost& failure) {
  if (!code_) code_ = 1;
  is_left_behind_ = true;
  if (!is_interrupted_ && !is_terminating_) say(failure.text);
}

void RankSupervisor::carry_out(const KillMember& order) {
  const auto found = ranks_.find(order.id);
  if (found != ranks_.end() && found->second.is_running) signal_group(found->second.pid, SIGKILL);
}

void RankSupervisor::on_elastic_change() {
  if (!elastic_) return;
  end_evicted();
  answer_status();
}

std::function<void(bool)> RankSupervisor::on_stop_of(Rank& rank) {
  return [this, &rank](bool is_stopped) {
    rank.is_stopped = is_stopped;
    steps_.stopped(static_cast<int>(rank.id), is_stopped, Clock::now());
    if (!elastic_) return;
    carry_out(elastic_->on_stop(rank.id, is_stopped));
    on_elastic_change();
    check_end();
  };
}

void RankSupervisor::tell_moment(const Rank& rank, const std::string& what) {
  if (!launch_.verbose) return;
  const std::chrono::duration<double> now = Clock::now().time_since_epoch();
  say("rank " + std::to_string(rank.id) + ": process " + std::to_string(rank.pid) + " " + what + " at " +
      std::to_string(now.count()) + " s");
}

void RankSupervisor::on_end(Rank& rank, int status) {
  rank.is_running = false;
  rank.end.status = status;
  rank.end.place = ends_++;
  rank.end.was_terminated = rank.is_sent_away;
  if (code_of(status) != 0 && !is_failing_ && (!elastic_ || is_interrupted_)) {
    is_failing_ = true;
    if (!is_terminating_) grace_.set(kGraceSeconds);
  }
  tell_moment(rank, "ended");
  steps_.ended(static_cast<int>(rank.id));
  if (RunTable* table = world_.table()) {
    rank.end.was_no_rank = table->holder(rank.slot.local_rank) == 0;
    table->set_end(rank.slot.local_rank, status);
  }
  if (elastic_) {
    carry_out(elastic_->on_end(rank.id, status));
    on_elastic_change();
  }
  signal_group(rank.pid, SIGTERM);
  rank.leftovers.set(kLeftoverSeconds);
  check_end();
}

void RankSupervisor::on_grace_over() {
  if (is_terminating_) {
    say(running_text() + " did not end within " + seconds_text(kTermSeconds) + " of SIGTERM: killed");
    for (auto& [id, rank] : ranks_) {
      if (rank.is_running && rank.is_sent_away) signal_group(rank.pid, SIGKILL);
    }
    return;
  }
  const bool spares_left = is_job_over_ && !is_interrupted_;
  if (spares_left) {
    const auto is_to_end = [this](const auto& one) { return one.second.is_running && !has_left(one.second); };
    if (std::none_of(ranks_.begin(), ranks_.end(), is_to_end)) return;
    say(running_text(false) + " did not end within " + seconds_text(launch_.park_timeout_s) +
        " of the end of the job (--park-timeout): SIGTERM");
  } else if (!is_interrupted_) {
    say(running_text() + " did not end within " + seconds_text(kGraceSeconds) + " of " +
        (elastic_ ? "the other ranks" : "the first failure") + ": SIGTERM");
  }
  terminate(spares_left);
}

void RankSupervisor::on_timeout() {
  std::string text = "the job did not end within " + seconds_text(launch_.timeout_s) +
                     " (--timeout); still running: " + running_text();
  for (const auto& [id, rank] : ranks_) {
    const auto& lines = rank.errors.tail().lines().empty() ? rank.output.tail().lines() : rank.errors.tail().lines();
    if (rank.is_running && !lines.empty()) {
      text += "\n  rank " + std::to_string(rank.id) + " printed last: " + lines.back();
    }
  }
  say(text);
  code_ = kTimeoutCode;
  terminate();
}

// spares_left: ranks that have left in good order go on to their end.
void RankSupervisor::terminate(bool spares_left) {
  is_terminating_ = true;
  for (auto& [id, rank] : ranks_) {
    if (rank.is_running && !(spares_left && has_left(rank))) send_away(rank, SIGTERM);
  }
  grace_.set(kTermSeconds);
}

// If the reader of the job's output has closed it, the job ends with SIGPIPE's code, as a program in a pipeline.
void RankSupervisor::on_writer() {
  for (auto& [id, rank] : ranks_) {
    rank.output.update_reading();
    rank.errors.update_reading();
  }
  const int error = output_->error() != 0 ? output_->error() : errors_->error();
  if (error != 0 && !code_) {
    code_ = error == EPIPE ? 128 + SIGPIPE : 1;
    if (error != EPIPE) say(std::string("cannot forward the output of the ranks: ") + std::strerror(error));
    if (!is_terminating_) terminate();
  }
  check_end();
}

void RankSupervisor::on_signal(int signal) {
  if (signal == SIGTERM && may_drain() && drain()) return;
  if (is_concluded_ || is_interrupted_) {
    signal_running(SIGKILL);
    for (StreamWriter* writer : {output_.get(), errors_}) writer->abandon(EINTR);
  } else if (signal == SIGTERM && is_draining_) {
    if (is_one_running()) code_ = 128 + SIGTERM;
    terminate();
  } else {
    signal_running(signal);
  }
  if (!std::exchange(is_interrupted_, true)) {
    for (auto& [id, rank] : ranks_) rank.is_lost_before = !rank.is_running;
  }
  check_end();  // all ranks may have ended, while the job goes on elsewhere
}

void RankSupervisor::signal_running(int signal) {
  for (const auto& [id, rank] : ranks_) {
    if (rank.is_running) signal_group(rank.pid, signal);
  }
}

void RankSupervisor::end_leftovers(Rank& rank) {
  rank.leftovers.stop();
  signal_group(rank.pid, SIGKILL);
  rank.output.close();
  rank.errors.close();
  check_end();
}

void RankSupervisor::say(const std::string& text) {
  story_.add(text, seconds_since_1970());
  errors_->write(folded(launch_.title + ": " + text + "\n"));
}

std::string RankSupervisor::running_text(bool with_left) const {
  std::string text;
  int count = 0;
  for (const auto& [id, rank] : ranks_) {
    if (!rank.is_running || (!with_left && has_left(rank))) continue;
    text += (count++ == 0 ? "" : ", ") + std::to_string(rank.id);
  }
  return (count == 1 ? "rank " : "ranks ") + text;
}

}  // namespace horo::tools
