// The format of scale.json: integers alone, in nanoseconds or millionths.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "tools/horo/run/step_text.h"
#include "tools/horo/scale/amounts.h"
#include "tools/horo/scale/scale_document.h"

namespace horo::tools {
namespace {

constexpr int kFormat = 1;
constexpr std::array<const char*, 3> kUnitNames{"samples", "steps of a rank", "steps of the job"};
constexpr std::array<std::string_view, 4> kWhenNames{"always", "periodic", "with the data", "at random"};  // by When
constexpr std::array<std::string_view, 5> kCauseNames{"not explained", "bar", "collection", "no core", "stopped"};

template <class Value>
ScaleJson optional_json(const std::optional<Value>& value) {
  return value ? ScaleJson(*value) : ScaleJson(nullptr);
}

OptionalNs optional_from(const ScaleJson& json) {
  return json.is_null() ? OptionalNs() : OptionalNs(json.get<std::int64_t>());
}

template <std::size_t N>
ScaleJson named_json(const std::array<OptionalNs, N>& values, const std::array<std::string_view, N>& names) {
  ScaleJson json = ScaleJson::object();
  for (std::size_t i = 0; i < N; ++i) json[std::string(names[i])] = optional_json(values[i]);
  return json;
}

template <std::size_t N>
std::array<OptionalNs, N> named_from(const ScaleJson& json, const std::array<std::string_view, N>& names) {
  std::array<OptionalNs, N> values;
  for (std::size_t i = 0; i < N; ++i) values[i] = optional_from(json.at(std::string(names[i])));
  return values;
}

std::int64_t ppm_of(double share) {
  return std::llround(share * static_cast<double>(kMillion));
}

double share_from(const ScaleJson& ppm) {
  return static_cast<double>(ppm.get<std::int64_t>()) / static_cast<double>(kMillion);
}

// The place of a name.
template <std::size_t N>
std::size_t place_in(const std::array<std::string_view, N>& names, const ScaleJson& name) {
  const auto found = std::ranges::find(names, name.get<std::string>());
  if (found == names.end()) throw std::invalid_argument("it is no document of horo scale: " + name.dump());
  return static_cast<std::size_t>(found - names.begin());
}

Straggler late_from(const ScaleJson& json) {
  Straggler late;
  late.rank = json.at("rank");
  late.exposed = share_from(json.at("exposed_ppm"));
  late.share = share_from(json.at("share_ppm"));
  late.late = std::chrono::nanoseconds(json.at("late_ns").get<std::int64_t>());
  late.steps = share_from(json.at("steps_ppm"));
  late.when = static_cast<When>(place_in(kWhenNames, json.at("when")));
  late.period = json.at("period");
  late.correlation = share_from(json.at("correlation_ppm"));
  late.cause = static_cast<Cause>(place_in(kCauseNames, json.at("cause")));
  late.bar = static_cast<Bar>(place_in(kBarNames, json.at("bar")));
  late.excess = std::chrono::nanoseconds(json.at("excess_ns").get<std::int64_t>());
  return late;
}

ScaleJson late_json(const std::optional<Straggler>& late) {
  if (!late) return nullptr;
  ScaleJson json = {{"rank", late->rank},
                    {"exposed_ppm", ppm_of(late->exposed)},
                    {"share_ppm", ppm_of(late->share)},
                    {"late_ns", std::chrono::nanoseconds(late->late).count()},
                    {"steps_ppm", ppm_of(late->steps)},
                    {"when", kWhenNames[static_cast<std::size_t>(late->when)]},
                    {"period", late->period},
                    {"correlation_ppm", ppm_of(late->correlation)},
                    {"cause", kCauseNames[static_cast<std::size_t>(late->cause)]},
                    {"bar", kBarNames[index_of(late->bar)]},
                    {"excess_ns", std::chrono::nanoseconds(late->excess).count()}};
  json["text"] = straggler_text(late_from(json));  // as it is after it was read
  return json;
}

ScaleJson size_json(const SizeResult& size) {
  ScaleJson by_rank = ScaleJson::array();
  for (const RankStep& rank : size.by_rank) {
    by_rank.push_back({{"rank", rank.rank}, {"step_ns", rank.step}, {"bars_ns", named_json(rank.bars, kBarNames)}});
  }
  return {{"ranks", size.ranks},
          {"runs", size.runs},
          {"steps", size.steps},
          {"rate_milli", size.rate_milli},
          {"efficiency_ppm", size.efficiency_ppm},
          {"interval_ppm", {size.low_ppm, size.high_ppm}},
          {"step_ns", size.step},
          {"ideal_ns", size.ideal},
          {"lost_ns", named_json(size.lost, kLossNames)},
          {"bars_ns", named_json(size.bars, kBarNames)},
          {"hidden_transfer_ns", size.hidden_transfer},
          {"run_queue_ppm", optional_json(size.run_queue_ppm)},
          {"median_step_ns", size.median_step},
          {"long_steps", size.long_steps},
          {"long_ns", size.long_time},
          {"by_rank", std::move(by_rank)},
          {"late", late_json(size.late)},
          {"lateness", {{"first_step", size.lateness.first_step}, {"caused_ns", size.lateness.caused}}}};
}

template <std::size_t N>
Wide known_sum(const std::array<OptionalNs, N>& values) {
  Wide sum = 0;
  for (const OptionalNs& value : values) sum += value.value_or(0);
  return sum;
}

// The views divide these sums.
void check_sums(const SizeResult& size) {
  const bool is_whole =
      size.step > 0 && known_sum(size.bars) == size.step && known_sum(size.lost) == size.step - size.ideal;
  if (!is_whole) throw std::invalid_argument("it is no document of horo scale: its figures do not add up");
}

SizeResult size_from(const ScaleJson& json) {
  SizeResult size;
  size.ranks = json.at("ranks");
  size.runs = json.at("runs");
  size.steps = json.at("steps");
  size.rate_milli = json.at("rate_milli");
  size.efficiency_ppm = json.at("efficiency_ppm");
  size.low_ppm = json.at("interval_ppm").at(0);
  size.high_ppm = json.at("interval_ppm").at(1);
  size.step = json.at("step_ns");
  size.ideal = json.at("ideal_ns");
  size.lost = named_from(json.at("lost_ns"), kLossNames);
  size.bars = named_from(json.at("bars_ns"), kBarNames);
  size.hidden_transfer = json.at("hidden_transfer_ns");
  size.run_queue_ppm = optional_from(json.at("run_queue_ppm"));
  size.median_step = json.at("median_step_ns");
  size.long_steps = json.at("long_steps");
  size.long_time = json.at("long_ns");
  for (const ScaleJson& rank : json.at("by_rank")) {
    size.by_rank.push_back({rank.at("rank"), rank.at("step_ns"), named_from(rank.at("bars_ns"), kBarNames)});
  }
  check_sums(size);
  if (!json.at("late").is_null()) size.late = late_from(json.at("late"));
  size.lateness.first_step = json.at("lateness").at("first_step");
  size.lateness.caused = json.at("lateness").at("caused_ns").get<std::vector<std::vector<std::int64_t>>>();
  return size;
}

ScaleJson sums_json(const RankSums& rank) {
  std::array<OptionalNs, kBars> bars;
  for (std::size_t i = 0; i < kBars; ++i) bars[i] = rank.sums.bars[i];
  ScaleJson unknown = ScaleJson::array();
  for (std::size_t i = 0; i < kBars; ++i) {
    if (!rank.sums.is_known[i]) unknown.push_back(std::string(kBarNames[i]));
  }
  return {{"rank", rank.rank},
          {"steps", rank.sums.rows},
          {"time_ns", rank.sums.time},
          {"samples", optional_json(rank.sums.samples)},
          {"bars_ns", named_json(bars, kBarNames)},
          {"not_known", std::move(unknown)},
          {"hidden_transfer_ns", rank.sums.hidden_transfer},
          {"run_queue_ns", optional_json(rank.sums.run_queue)},
          {"caused_ns", rank.caused}};
}

// One array for each row, so that thousands of them stay small.
ScaleJson rows_json(const std::vector<StepRow>& rows) {
  ScaleJson names = {"rank", "step", "begin_ns", "time_ns", "samples", "work", "hidden_transfer_ns"};
  for (const std::string_view name : kBarNames) names.push_back(std::string(name));
  ScaleJson values = ScaleJson::array();
  for (const StepRow& row : rows) {
    ScaleJson value = {
        row.rank,           row.step, row.begin, row.time, optional_json(row.samples), optional_json(row.work),
        row.hidden_transfer};
    for (const OptionalNs& bar : row.bars) value.push_back(optional_json(bar));
    values.push_back(std::move(value));
  }
  return {{"fields", std::move(names)}, {"values", std::move(values)}};
}

ScaleJson run_json(const RunData& run) {
  ScaleJson json = {{"ranks", run.ranks}, {"round", run.round}};
  json["failure"] = run.failure.empty() ? ScaleJson(nullptr) : ScaleJson(run.failure);
  if (!run.failure.empty()) return json;
  json["steps"] = run.steps;
  json["warm_up_steps"] = run.warm_up_steps;
  json["left_out"] = run.left_out;
  json["samples_of_rank"] = optional_json(run.samples_of_rank);
  json["samples_of_step"] = optional_json(run.samples_of_step);
  json["by_rank"] = ScaleJson::array();
  for (const RankSums& rank : run.by_rank) json["by_rank"].push_back(sums_json(rank));
  json["blocks"] = ScaleJson::array();
  for (const StepBlock& block : run.blocks) json["blocks"].push_back({block.rows, block.time, block.samples});
  json["rows"] = rows_json(run.rows);
  return json;
}

ScaleDocument read_document(const ScaleJson& json) {
  if (json.at("format") != kFormat) throw std::invalid_argument("it is of another version of horo");
  ScaleDocument document;
  document.version = json.at("horo");
  document.command = json.at("command").get<std::vector<std::string>>();
  document.started_s = json.at("started_s");
  document.cores = json.at("machine").at("cores");
  document.model = json.at("machine").at("model");
  document.kernel = json.at("machine").at("kernel");
  const ScaleJson& plan = json.at("plan");
  document.plan.sizes = plan.at("ranks").get<std::vector<int>>();
  document.plan.rounds = plan.at("rounds");
  document.plan.run_ns = plan.at("run_ns");
  document.plan.is_strong = plan.at("is_strong");
  document.samples = optional_from(json.at("samples"));
  for (std::size_t i = 0; i < kUnitNames.size(); ++i) {
    if (json.at("unit") == kUnitNames[i]) document.table.unit = static_cast<WorkUnit>(i);
  }
  for (const ScaleJson& size : json.at("table")) document.table.sizes.push_back(size_from(size));
  document.notes = json.at("notes").get<std::vector<std::string>>();
  return document;
}

}  // namespace

ScaleJson to_json(const ScaleDocument& document) {
  ScaleJson json;
  json["format"] = kFormat;
  json["horo"] = document.version;
  json["command"] = document.command;
  json["started_s"] = document.started_s;
  json["machine"] = {{"cores", document.cores}, {"model", document.model}, {"kernel", document.kernel}};
  json["plan"] = {{"ranks", document.plan.sizes},
                  {"rounds", document.plan.rounds},
                  {"run_ns", document.plan.run_ns},
                  {"is_strong", document.plan.is_strong},
                  {"cores_of_rank", document.plan.cores_of_rank(document.cores)},
                  {"warm_up_steps", StepWindow::kWarmUpSteps},
                  {"warm_up_ns", document.plan.window().warm_up_ns()}};
  json["unit"] = kUnitNames[static_cast<std::size_t>(document.table.unit)];
  json["samples"] = optional_json(document.samples);
  json["notes"] = document.notes;
  json["table"] = ScaleJson::array();
  for (const SizeResult& size : document.table.sizes) json["table"].push_back(size_json(size));
  json["runs"] = ScaleJson::array();
  for (const RunData& run : document.runs) json["runs"].push_back(run_json(run));
  // What is read again is what is written: bytes that are no UTF-8 are replaced once.
  return ScaleJson::parse(json.dump(-1, ' ', false, ScaleJson::error_handler_t::replace));
}

ScaleDocument document_from(const ScaleJson& json) {
  try {
    return read_document(json);
  } catch (const ScaleJson::exception& error) {
    throw std::invalid_argument(std::string("it is no document of horo scale: ") + error.what());
  }
}

}  // namespace horo::tools
