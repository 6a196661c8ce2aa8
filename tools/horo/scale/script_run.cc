#include "tools/horo/scale/script_run.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <list>
#include <string_view>
#include <utility>

#include "horo/base/output_file.h"
#include "horo/base/say.h"
#include "horo/base/time.h"
#include "tools/horo/run/child.h"
#include "tools/horo/run/output_tail.h"
#include "tools/horo/run/verdict.h"
#include "tools/horo/scale/scale_plan.h"

namespace horo::tools {
namespace {

constexpr double kLookSeconds = 0.2;
constexpr int kMostHolds = 50;  // looks, for the other ranks to write their steps
constexpr double kTermSeconds = 5;
constexpr double kLeastNotice = 2, kMostNotice = 10;  // seconds
constexpr double kStepsOfNotice = 3;
constexpr std::array kInterrupts{SIGINT, SIGTERM, SIGHUP};

std::int64_t now_ns() {
  return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
}

// That of this process, but for the settings of this run.
std::vector<std::string> environment_of(const std::string& folder) {
  std::vector<std::string> environment{"HORO_SCALE=1", "HORO_STEPS=" + steps_setting_of(folder)};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const std::string_view name = text.substr(0, text.find('='));
    if (name != "HORO_SCALE" && name != "HORO_STEPS" && name != "HORO_ACCOUNTING") environment.emplace_back(text);
  }
  return environment;
}

constexpr std::string_view kTitle = "horo run: ";

std::string trimmed(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(" \t"), end = line.find_last_not_of(" \t\r\n");
  return begin == std::string_view::npos ? "" : std::string(line.substr(begin, end + 1 - begin));
}

class ScriptRun {
 public:
  explicit ScriptRun(const ScriptOrder& order)
      : order_(order),
        loop_(::ev_default_loop(0)),
        child_(start(program_of(order))),
        pid_(child_.pid),
        output_(loop_, std::move(child_.output), destinations("output.txt")),
        errors_(loop_, std::move(child_.errors), destinations("errors.txt")),
        steps_(steps_file_of(order.folder, 0)),
        watch_(order.window, order.first_step_ns, now_ns()),
        look_(loop_, [this] { on_look(); }),
        patience_(loop_, [this] { end_again(); }),
        ended_(loop_, pid_, [this](int status) {
          status_ = status;
          check_end();
        }) {
    for (const int signal : kInterrupts)
      signals_.emplace_back(loop_, signal, [this](int number) { on_interrupt(number); });
    look_.set(kLookSeconds);
  }

  ScriptEnd run() {
    ::ev_run(loop_, 0);
    ScriptEnd end;
    end.interrupt = interrupt_;
    end.failure = watch_.failure();
    const bool is_ours = is_ending_ || *status_ == 0;
    if (!is_ours) end.failure = last_words();
    if (!is_ours && end.failure.empty()) end.failure = status_text(*status_);
    return end;
  }

 private:
  static Program program_of(const ScriptOrder& order) {
    Program program;
    program.arguments = order.command;
    program.environment = environment_of(order.folder);
    program.cores = order.cores;
    return program;
  }

  RankStream::Destinations destinations(const char* name) {
    RankStream::Destinations destinations;
    destinations.file = Descriptor(open_output_file(AT_FDCWD, order_.folder + "/" + name, 0644));
    destinations.writer = &none_;
    destinations.take = [this](std::string_view line) {
      const bool is_verdict = line.starts_with(kTitle) && !line.starts_with("horo run: warning");
      if (is_verdict && verdict_.empty()) verdict_ = trimmed(line.substr(kTitle.size()));
      return true;
    };
    destinations.end = [this] { check_end(); };
    return destinations;
  }

  // What horo run says of the failure; else the last line.
  std::string last_words() const {
    const auto& lines = errors_.tail().lines();
    return !verdict_.empty() || lines.empty() ? verdict_ : trimmed(lines.back());
  }

  void on_look() {
    steps_.look([this](const StepRow& row) {
      watch_.on_step(row.begin, row.time);
      last_step_s_ = static_cast<double>(row.time) / kNsInSecond;
      if (!is_full_) last_step_ = row.step;
    });
    is_full_ = watch_.order(now_ns()) == RunWatch::Order::kEnd;
    if (is_full_ && (!watch_.failure().empty() || have_all_written() || ++holds_ > kMostHolds)) end();
    order_.on_progress(watch_.measured_ns());
    look_.set(kLookSeconds);
  }

  // Each rank writes its steps by itself, a moment after they end.
  bool have_all_written() const {
    for (int rank = 1; rank < order_.ranks; ++rank) {
      if (last_step_in(steps_file_of(order_.folder, rank)) < last_step_) return false;
    }
    return true;
  }

  // At once: without a notice.
  void on_interrupt(int signal) {
    if (std::exchange(interrupt_, signal) != 0) return end_again();
    is_ending_ = true;
    ::kill(pid_, SIGINT);
    patience_.set(kTermSeconds);
  }

  void end() {
    if (std::exchange(is_ending_, true)) return;
    ::kill(pid_, SIGTERM);
    patience_.set(std::clamp(kStepsOfNotice * last_step_s_, kLeastNotice, kMostNotice));
  }

  // horo run has a limit of its own for the ranks that this signal is passed on to.
  void end_again() {
    ::kill(pid_, ++urges_ == 1 ? SIGTERM : SIGKILL);
    patience_.set(kTermSeconds);
  }

  void check_end() {
    if (status_ && !output_.is_open() && !errors_.is_open()) ::ev_break(loop_, EVBREAK_ALL);
  }

  const ScriptOrder& order_;
  struct ev_loop* const loop_;
  StreamWriter none_{loop_, -1, [] {}};  // nothing is written to it
  Child child_;
  const pid_t pid_;
  RankStream output_, errors_;
  GrowingSteps steps_;
  RunWatch watch_;
  Timer look_, patience_;
  ChildWatch ended_;
  std::list<SignalWatch> signals_;
  std::optional<int> status_;
  std::string verdict_;
  std::int64_t last_step_ = 0;  // of rank 0 when its window was full
  double last_step_s_ = 0;
  int holds_ = 0, urges_ = 0, interrupt_ = 0;
  bool is_full_ = false, is_ending_ = false;
};

}  // namespace

ScriptEnd run_script(const ScriptOrder& order) {
  return ScriptRun(order).run();
}

}  // namespace horo::tools
