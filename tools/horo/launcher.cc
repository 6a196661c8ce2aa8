// One libev loop sees everything that can happen: a rank ends, a pipe has bytes, a signal comes, a time is over. A rank
// is over when its process has ended and its pipes are at their end; helpers that it left behind get a second.
#include "tools/horo/launcher.h"

#include <ev.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>

#include "tools/horo/child.h"
#include "tools/horo/local_world.h"
#include "tools/horo/output.h"

namespace horo {
namespace {

constexpr double kGraceSeconds = 5;   // from the first failure to SIGTERM
constexpr double kTermSeconds = 3;    // from SIGTERM to SIGKILL
constexpr double kHelperSeconds = 1;  // from a rank's end to the end of what it left behind
constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP};

class Launcher;

struct Stream {
  Launcher* launcher = nullptr;
  Fd from;
  int to = -1;
  LinePrefixer lines;
  ev_io readable{};
};

struct Rank {
  Launcher* launcher = nullptr;
  int rank = 0;
  pid_t pid = 0;
  bool running = true;
  Stream output, errors;
  ev_child ended{};
  ev_timer helpers{};
};

std::string describe_status(int status) {
  if (WIFEXITED(status)) return "exit code " + std::to_string(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  return "signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
}

int code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class Launcher {
 public:
  explicit Launcher(const Launch& launch) : launch_(launch), world_(launch.ranks), loop_(::ev_default_loop(0)) {
    ev_init(&patience_, [](struct ev_loop*, ev_timer* w, int) { static_cast<Launcher*>(w->data)->out_of_patience(); });
    patience_.data = this;
    for (std::size_t i = 0; i < signals_.size(); ++i) {
      ev_signal_init(
          &signals_[i], [](struct ev_loop*, ev_signal* w, int) { static_cast<Launcher*>(w->data)->pass_on(w->signum); },
          kPassedOn[i]);
      signals_[i].data = this;
      ::ev_signal_start(loop_, &signals_[i]);
    }
    before_pipe_ = ::signal(SIGPIPE, SIG_IGN);  // a reader that went away is seen where we write
  }

  ~Launcher() {
    for (Rank& rank : ranks_) give_up(rank);
    for (ev_signal& signal : signals_) ::ev_signal_stop(loop_, &signal);
    ::ev_timer_stop(loop_, &patience_);
    ::signal(SIGPIPE, before_pipe_);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  int run() {
    try {
      for (int rank = 0; rank < launch_.ranks; ++rank) start_rank(rank);
    } catch (const StartFailed& failed) {
      say(failed.what());
      return failed.exit_code();
    }
    if (!all_over()) ::ev_run(loop_, 0);
    return first_failure_.value_or(0);
  }

 private:
  void start_rank(int number) {
    Child child = start({launch_.command, world_.environment(number), world_.key_fd()});
    const std::string prefix = launch_.prefixed ? std::string(1, '[').append(std::to_string(number)).append("] ") : "";
    Rank& rank = ranks_.emplace_back(Rank{.launcher = this,
                                          .rank = number,
                                          .pid = child.pid,
                                          .output = {this, std::move(child.output), 1, LinePrefixer(prefix)},
                                          .errors = {this, std::move(child.errors), 2, LinePrefixer(prefix)}});
    listen_to(rank.output);
    listen_to(rank.errors);
    ev_child_init(
        &rank.ended,
        [](struct ev_loop*, ev_child* w, int) {
          Rank& rank = *static_cast<Rank*>(w->data);
          rank.launcher->on_end(rank, w->rstatus);
        },
        rank.pid, 0);
    rank.ended.data = &rank;
    ::ev_child_start(loop_, &rank.ended);
    ev_timer_init(
        &rank.helpers,
        [](struct ev_loop*, ev_timer* w, int) {
          Rank& rank = *static_cast<Rank*>(w->data);
          rank.launcher->end_helpers(rank);
        },
        kHelperSeconds, 0);
    rank.helpers.data = &rank;
  }

  void listen_to(Stream& stream) {
    ev_io_init(
        &stream.readable,
        [](struct ev_loop*, ev_io* w, int) {
          Stream& stream = *static_cast<Stream*>(w->data);
          stream.launcher->read_some(stream);
          stream.launcher->look_for_end();
        },
        stream.from.get(), EV_READ);
    stream.readable.data = &stream;
    ::ev_io_start(loop_, &stream.readable);
  }

  // One read, so that ranks that talk much share the loop fairly. False: there is nothing more at the moment.
  bool read_some(Stream& stream) {
    std::array<char, 64 << 10> bytes;
    const ssize_t got = ::read(stream.from.get(), bytes.data(), bytes.size());
    if (got > 0) {
      pass_text(stream.to, stream.lines.feed({bytes.data(), static_cast<std::size_t>(got)}));
      return true;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    close_stream(stream);
    return false;
  }

  void close_stream(Stream& stream) {
    if (!stream.from.is_open()) return;
    ::ev_io_stop(loop_, &stream.readable);
    { const Fd closed = std::move(stream.from); }
    pass_text(stream.to, stream.lines.finish());
  }

  // When nobody reads what the job says, it ends as a program in a pipeline does.
  void pass_text(int to, const std::string& text) {
    if (text.empty() || reader_gone_ || write_all(to, text)) return;
    reader_gone_ = true;
    if (!first_failure_) first_failure_ = 128 + SIGPIPE;
    ask_to_end();
  }

  void on_end(Rank& rank, int status) {
    ::ev_child_stop(loop_, &rank.ended);
    rank.running = false;
    if (code_of(status) != 0 && !first_failure_) on_first_failure(rank, status);
    signal_group(rank.pid, SIGTERM);
    ::ev_timer_start(loop_, &rank.helpers);
    look_for_end();
  }

  void on_first_failure(const Rank& rank, int status) {
    first_failure_ = code_of(status);
    if (!interrupted_) say("rank " + std::to_string(rank.rank) + " failed first: " + describe_status(status));
    if (!asked_) set_patience(kGraceSeconds);
  }

  void set_patience(double seconds) {
    ::ev_timer_stop(loop_, &patience_);
    ev_timer_set(&patience_, seconds, 0.);
    ::ev_timer_start(loop_, &patience_);
  }

  void out_of_patience() {
    if (asked_) {
      signal_running(SIGKILL);
    } else {
      ask_to_end();
    }
  }

  void ask_to_end() {
    asked_ = true;
    signal_running(SIGTERM);
    set_patience(kTermSeconds);
  }

  void pass_on(int signal) {
    signal_running(interrupted_ ? SIGKILL : signal);
    interrupted_ = true;
  }

  void signal_running(int signal) {
    for (const Rank& rank : ranks_) {
      if (rank.running) signal_group(rank.pid, signal);
    }
  }

  void end_helpers(Rank& rank) {
    ::ev_timer_stop(loop_, &rank.helpers);
    signal_group(rank.pid, SIGKILL);
    for (Stream* stream : {&rank.output, &rank.errors}) {
      while (stream->from.is_open() && read_some(*stream)) {
      }
      close_stream(*stream);
    }
    look_for_end();
  }

  // What is left of a rank whose pipes are closed has nothing more to say.
  void look_for_end() {
    for (Rank& rank : ranks_) {
      if (rank.running || rank.output.from.is_open() || rank.errors.from.is_open()) continue;
      if (ev_is_active(&rank.helpers)) {
        ::ev_timer_stop(loop_, &rank.helpers);
        signal_group(rank.pid, SIGKILL);
      }
    }
    if (all_over()) ::ev_break(loop_, EVBREAK_ALL);
  }

  bool all_over() const {
    for (const Rank& rank : ranks_) {
      if (rank.running || rank.output.from.is_open() || rank.errors.from.is_open()) return false;
    }
    return true;
  }

  // Only where the others could not be started does a rank still run here.
  void give_up(Rank& rank) {
    if (rank.running) {
      signal_group(rank.pid, SIGKILL);
      ::waitpid(rank.pid, nullptr, 0);
    }
    ::ev_child_stop(loop_, &rank.ended);
    ::ev_timer_stop(loop_, &rank.helpers);
    close_stream(rank.output);
    close_stream(rank.errors);
  }

  void say(const std::string& text) { write_all(2, launch_.title + ": " + text + "\n"); }

  const Launch& launch_;
  const LocalWorld world_;
  struct ev_loop* const loop_;
  std::list<Rank> ranks_;  // watchers hold their addresses
  ev_timer patience_{};
  std::array<ev_signal, kPassedOn.size()> signals_{};
  sighandler_t before_pipe_ = nullptr;
  std::optional<int> first_failure_;
  bool asked_ = false;        // to end, by SIGTERM
  bool interrupted_ = false;  // from outside
  bool reader_gone_ = false;
};

}  // namespace

int launch(const Launch& launch) {
  Launcher launcher(launch);
  return launcher.run();
}

}  // namespace horo
