// One libev loop sees everything that can happen: a rank ends, a pipe has bytes, a signal comes, a time is over. A rank
// is over when its process has ended and its pipes are at their end; helpers that it left behind get a second.
#include "tools/horo/run/supervisor.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tools/horo/machine/cores.h"
#include "tools/horo/run/child.h"

namespace horo::tools {
namespace {

constexpr double kGraceSeconds = 5;   // from the first failure to SIGTERM
constexpr double kTermSeconds = 3;    // from SIGTERM to SIGKILL
constexpr double kHelperSeconds = 1;  // from a rank's end to the end of what it left behind
constexpr int kTimeOver = 124;        // exit code, as timeout(1) has it
constexpr std::array kEnding = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array kPassedOnOnly = {SIGUSR1, SIGUSR2};

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
std::string say_seconds(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text + " s";
}

}  // namespace

RankSupervisor::Rank::Rank(RankSupervisor& job, int number, Child child)
    : pid(child.pid),
      output(job.loop_, std::move(child.output), job.ways_of(number, false)),
      errors(job.loop_, std::move(child.errors), job.ways_of(number, true)),
      helpers(job.loop_, [this, &job] { job.end_helpers(*this); }),
      ended(job.loop_, pid, [this, &job](int status) { job.on_end(*this, status); }) {
  end.rank = number;
}

RankSupervisor::RankSupervisor(const Launch& launch, const LocalWorld& world, int lifeline_fd)
    : launch_(launch),
      world_(world),
      loop_(::ev_default_loop(0)),
      host_(host_name()),
      output_(std::make_unique<Outlet>(loop_, 1, [this] { on_outlet(); })),
      own_errors_(is_one_file(1, 2) ? nullptr : std::make_unique<Outlet>(loop_, 2, [this] { on_outlet(); })),
      errors_(own_errors_ ? own_errors_.get() : output_.get()),
      lifeline_(loop_, lifeline_fd, EV_READ,
                [this] {
                  signal_running(SIGKILL);
                  code_ = 128 + SIGKILL;
                  ::ev_break(loop_, EVBREAK_ALL);
                }),
      patience_(loop_, [this] { out_of_patience(); }),
      time_(loop_, [this] { on_time_over(); }) {
  lifeline_.start();
  for (const int signal : kEnding) signals_.emplace_back(loop_, signal, [this](int number) { on_signal(number); });
  for (const int signal : kPassedOnOnly) {
    signals_.emplace_back(loop_, signal, [this](int number) {
      for (const Rank& rank : ranks_) {
        if (rank.is_running) ::kill(rank.pid, number);
      }
    });
  }
  ::signal(SIGPIPE, SIG_IGN);  // a reader that went away is seen where we write
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

RankSupervisor::~RankSupervisor() {
  signal_running(SIGKILL);
}

int RankSupervisor::run() {
  try {
    for (int rank = 0; rank < launch_.ranks(); ++rank) start_rank(rank);
  } catch (const StartFailed& failed) {
    signal_running(SIGKILL);
    say(failed.what());
    code_ = failed.exit_code();
    is_concluded_ = true;
    if (errors_->is_empty()) return *code_;
  }
  if (launch_.timeout_s > 0) time_.set(launch_.timeout_s);
  ::ev_run(loop_, 0);
  return code_.value_or(0);
}

void RankSupervisor::start_rank(int local_rank) {
  Program program{launch_.command, world_.environment(local_rank), world_.key_fd(), launch_.cwd,
                  world_.cores(local_rank)};
  const int number = launch_.first_rank() + local_rank;
  Child child = start(program);
  if (launch_.verbose) {
    say("rank " + std::to_string(number) + ": process " + std::to_string(child.pid) +
        (program.cores.empty() ? "" : ", cores " + say_cores(program.cores)));
  }
  ranks_.emplace_back(*this, number, std::move(child));
}

RankStream::Ways RankSupervisor::ways_of(int rank, bool is_errors) {
  RankStream::Ways ways;
  if (launch_.prefixed) ways.prefix = "[" + std::to_string(rank) + "] ";
  ways.outlet = is_errors ? errors_ : output_.get();
  if (!launch_.output_dir.empty()) ways.file = make_rank_file(launch_.output_dir, rank, is_errors ? ".err" : ".out");
  ways.end = [this] { look_for_end(); };
  return ways;
}

void RankSupervisor::on_end(Rank& rank, int status) {
  rank.is_running = false;
  rank.end.status = status;
  rank.end.place = ends_++;
  rank.end.was_told = is_asked_;
  if (code_of(status) != 0 && !is_failing_) {
    is_failing_ = true;
    if (!is_asked_) patience_.set(kGraceSeconds);
  }
  signal_group(rank.pid, SIGTERM);
  rank.helpers.set(kHelperSeconds);
  look_for_end();
}

void RankSupervisor::out_of_patience() {
  if (is_asked_) {
    say(say_running() + " did not end within " + say_seconds(kTermSeconds) + " of SIGTERM: killed");
    return signal_running(SIGKILL);
  }
  if (!is_interrupted_) {
    say(say_running() + " did not end within " + say_seconds(kGraceSeconds) + " of the first failure: SIGTERM");
  }
  ask_to_end();
}

void RankSupervisor::on_time_over() {
  std::string text =
      "the job did not end within " + say_seconds(launch_.timeout_s) + " (--timeout); still running: " + say_running();
  for (const Rank& rank : ranks_) {
    const auto& lines = rank.errors.words().lines().empty() ? rank.output.words().lines() : rank.errors.words().lines();
    if (rank.is_running && !lines.empty()) {
      text += "\n  rank " + std::to_string(rank.end.rank) + " said last: " + lines.back();
    }
  }
  say(text);
  code_ = kTimeOver;
  ask_to_end();
}

void RankSupervisor::ask_to_end() {
  is_asked_ = true;
  signal_running(SIGTERM);
  patience_.set(kTermSeconds);
}

// When nobody reads what the job says, it ends as a program in a pipeline does.
void RankSupervisor::on_outlet() {
  for (Rank& rank : ranks_) {
    rank.output.follow_outlet();
    rank.errors.follow_outlet();
  }
  const int error = output_->error() != 0 ? output_->error() : errors_->error();
  if (error != 0 && !code_) {
    code_ = error == EPIPE ? 128 + SIGPIPE : 1;
    if (error != EPIPE) say(std::string("cannot pass on what the ranks say: ") + std::strerror(error));
    if (!is_asked_) ask_to_end();
  }
  look_for_end();
}

void RankSupervisor::on_signal(int signal) {
  if (is_concluded_ || is_interrupted_) {
    signal_running(SIGKILL);
    for (Outlet* outlet : {output_.get(), errors_}) outlet->abandon(EINTR);
    look_for_end();
  } else {
    signal_running(signal);
  }
  is_interrupted_ = true;
}

void RankSupervisor::signal_running(int signal) {
  for (const Rank& rank : ranks_) {
    if (rank.is_running) signal_group(rank.pid, signal);
  }
}

void RankSupervisor::end_helpers(Rank& rank) {
  rank.helpers.stop();
  signal_group(rank.pid, SIGKILL);
  rank.output.close();
  rank.errors.close();
  look_for_end();
}

void RankSupervisor::look_for_end() {
  if (!is_concluded_) {
    if (!end_what_is_over()) return;
    conclude();
  }
  if (output_->is_empty() && errors_->is_empty()) ::ev_break(loop_, EVBREAK_ALL);
}

// What is left of a rank whose pipes are closed has nothing more to say. True if all are over.
bool RankSupervisor::end_what_is_over() {
  bool are_all_over = ranks_.size() == static_cast<std::size_t>(launch_.ranks());
  for (Rank& rank : ranks_) {
    if (!rank.is_over()) {
      are_all_over = false;
    } else if (rank.helpers.is_set()) {
      rank.helpers.stop();
      signal_group(rank.pid, SIGKILL);
    }
  }
  return are_all_over;
}

void RankSupervisor::conclude() {
  is_concluded_ = true;
  patience_.stop();
  time_.stop();
  std::vector<RankEnd> ends;
  for (Rank& rank : ranks_) {
    rank.end.output = rank.output.words();
    rank.end.errors = rank.errors.words();
    ends.push_back(rank.end);
  }
  const ExitVerdict verdict = judge(ends, launch_.title, host_);
  if (!code_) code_ = verdict.code;
  if (!is_interrupted_) errors_->write(verdict.text);
}

std::string RankSupervisor::say_running() const {
  std::string text;
  int count = 0;
  for (const Rank& rank : ranks_) {
    if (!rank.is_running) continue;
    text += (count++ == 0 ? "" : ", ") + std::to_string(rank.end.rank);
  }
  return (count == 1 ? "rank " : "ranks ") + text;
}

}  // namespace horo::tools
