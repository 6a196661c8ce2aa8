#include "tools/horo/scale/command.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <set>
#include <stdexcept>

#include "horo/base/say.h"
#include "horo/base/version.h"
#include "tools/horo/machine/cores.h"
#include "tools/horo/machine/facts.h"
#include "tools/horo/run/lines.h"
#include "tools/horo/scale/findings.h"
#include "tools/horo/scale/progress.h"
#include "tools/horo/scale/scale_folder.h"
#include "tools/horo/scale/scale_text.h"
#include "tools/horo/scale/script_run.h"
#include "tools/horo/scale/script_words.h"

namespace horo::tools {
namespace {

constexpr double kMostSeconds = 86'400;

ScalePlan plan_of(const ScaleOptions& options) {
  if (options.program.empty()) {
    throw std::invalid_argument("expected a program, as in: horo scale run -n 1,2,4 -- python train.py");
  }
  if (options.seconds > kMostSeconds || options.first_step_s > kMostSeconds) {
    throw std::invalid_argument("--seconds, --first-step: expected at most 86400");
  }
  ScalePlan plan;
  plan.sizes = sizes_from(options.sizes);
  plan.rounds = options.rounds;
  plan.run_ns = static_cast<std::int64_t>(options.seconds * kNsInSecond);
  plan.is_strong = options.is_strong;
  return plan;
}

// Runs the plan, one run after the other.
class ScaleMeasurement {
 public:
  ScaleMeasurement(const ScaleOptions& options, const ScalePlan& plan, const ScaleFolder& folder)
      : options_(options), plan_(plan), folder_(folder), cores_(allowed_cores()), progress_(plan) {}

  void run() {
    for (const PlannedRun& planned : plan_.runs()) {
      if (has_failed_.contains(planned.ranks)) {
        progress_.skip(planned);
        continue;
      }
      progress_.begin(planned);
      const ScriptEnd end = run_one(planned);
      if (interrupt_ = end.interrupt; interrupt_ != 0) return;
      progress_.end(runs_.back());
      if (!runs_.back().failure.empty()) has_failed_.insert(planned.ranks);
      samples_ = check_samples(runs_, plan_.is_strong);
      if (!samples_.error.empty()) return;
      if (runs_.size() == 1 && end.failure.starts_with("no steps")) return;  // as it will be with any number of ranks
    }
  }

  const std::vector<RunData>& runs() const { return runs_; }
  const SamplesCheck& samples() const { return samples_; }
  int interrupt() const { return interrupt_; }  // 0: none
  bool has_failed() const { return !has_failed_.empty(); }

 private:
  ScriptEnd run_one(const PlannedRun& planned) {
    const std::string folder = folder_.make_run(planned.ranks, planned.round);
    ScriptOrder order;
    order.command = command_for(planned.ranks, folder);
    order.folder = folder;
    order.cores = cores_for(planned.ranks);
    order.ranks = planned.ranks;
    order.window = plan_.window();
    order.first_step_ns = static_cast<std::int64_t>(options_.first_step_s * kNsInSecond);
    order.on_progress = [this](std::int64_t measured_ns) { progress_.show(measured_ns); };
    ScriptEnd end = run_script(order);
    if (end.interrupt == 0) runs_.push_back(result_of(planned, folder, end));
    return end;
  }

  RunData result_of(const PlannedRun& planned, const std::string& folder, const ScriptEnd& end) const {
    RunData run;
    if (end.failure.empty()) {
      const StepsOfRun steps = read_steps(folder, planned.ranks);
      run = measure_run(steps.by_rank, plan_.window());
      run.left_out = steps.left_out;
      if (!steps.error.empty()) run.failure = steps.error;
      const bool has_none =
          std::all_of(steps.by_rank.begin(), steps.by_rank.end(), [](const auto& rows) { return rows.empty(); });
      if (has_none)
        run.failure = "no steps before its end: does the script use DistributedOptimizer or a process group?";
    } else {
      run.failure = end.failure;
    }
    run.ranks = planned.ranks;
    run.round = planned.round;
    return run;
  }

  std::vector<std::string> command_for(int ranks, const std::string& folder) const {
    const std::filesystem::path here = std::filesystem::current_path();
    std::vector<std::string> command{std::filesystem::read_symlink("/proc/self/exe").string(),
                                     "run",
                                     "-n",
                                     std::to_string(ranks),
                                     "--grace",
                                     std::to_string(kNoticeSeconds),
                                     "--bind-to",
                                     options_.bind_to,
                                     "--cwd",
                                     options_.cwd.empty() ? folder : options_.cwd,
                                     "--"};
    const std::vector<std::string> words =
        options_.cwd.empty() ? absolute_words(options_.program, here) : options_.program;
    command.insert(command.end(), words.begin(), words.end());
    return command;
  }

  // The first ones. A rank that had more of them alone than beside others would look faster alone.
  std::vector<int> cores_for(int ranks) const {
    const auto share = static_cast<std::size_t>(plan_.cores_of_rank(granted_cores()));
    const std::size_t count = std::min(cores_.size(), share * static_cast<std::size_t>(ranks));
    return {cores_.begin(), cores_.begin() + static_cast<std::ptrdiff_t>(count)};
  }

  const ScaleOptions& options_;
  const ScalePlan& plan_;
  const ScaleFolder& folder_;
  const std::vector<int> cores_;
  ScaleProgress progress_;
  std::vector<RunData> runs_;
  std::set<int> has_failed_;
  SamplesCheck samples_;
  int interrupt_ = 0;
};

ScaleDocument document_of(const ScaleOptions& options, const ScalePlan& plan, const ScaleMeasurement& measured) {
  ScaleDocument document;
  document.version = kVersion;
  document.command = options.words;
  document.cores = granted_cores();
  document.model = cpu_model();
  document.kernel = kernel_release();
  document.plan = plan;
  document.samples = measured.samples().samples;
  document.runs = measured.runs();
  document.table = table_of(document.runs, plan.is_strong);
  document.notes = findings_of(document.runs, document.table, plan, document.cores);
  if (!measured.samples().error.empty()) document.notes.insert(document.notes.begin(), measured.samples().error);
  if (measured.interrupt() != 0) document.notes.insert(document.notes.begin(), "interrupted: not all runs were made");
  return document;
}

void print(const ScaleJson& json, const ScaleFolder& folder) {
  std::cout << text_of(document_from(json)) << "  " << folder.page_file() << "  " << folder.json_file() << std::endl;
}

}  // namespace

int run_scale(const ScaleOptions& options) {
  const ScalePlan plan = plan_of(options);
  const ScaleFolder folder(options.out);
  folder.prepare();
  const auto started = std::chrono::system_clock::now().time_since_epoch();
  std::cerr << folded(plan.text(granted_cores()));
  ScaleMeasurement measurement(options, plan, folder);
  measurement.run();
  ScaleDocument document = document_of(options, plan, measurement);
  document.started_s = std::chrono::duration_cast<std::chrono::seconds>(started).count();
  const ScaleJson json = to_json(document);
  folder.write(json);
  print(json, folder);
  if (measurement.interrupt() != 0) return 128 + measurement.interrupt();
  return measurement.has_failed() || !measurement.samples().error.empty() ? 1 : 0;
}

int report_scale(const ScaleOptions& options) {
  const ScaleFolder folder(options.report_folder);
  const ScaleJson json = folder.read();
  document_from(json);  // before a file is written
  folder.write_page(json);
  print(json, folder);
  return 0;
}

}  // namespace horo::tools
