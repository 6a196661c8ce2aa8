#include "tools/horo/scale/step_row.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "horo/base/say.h"

namespace horo::tools {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostNumber = std::int64_t{1} << 58;  // sums of all bars stay in range

std::optional<std::int64_t> number_in(const Json& object, std::string_view name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_integer()) return {};
  const auto number = found->get<std::int64_t>();
  return number > -kMostNumber && number < kMostNumber ? std::optional(number) : std::nullopt;
}

std::int64_t sum_of(const StepRow& row) {
  std::int64_t sum = 0;
  for (const OptionalNs& bar : row.bars) sum += bar.value_or(0);
  return sum;
}

void read_late(const Json& object, StepRow& row) {
  const auto late = object.find("late");
  if (late == object.end() || !late->is_object()) return;
  for (const auto& [rank, _] : late->items()) {
    if (rank.empty() || rank.size() > 9 || rank.find_first_not_of("0123456789") != std::string::npos) continue;
    if (const auto known = number_in(*late, rank)) row.late[std::stoll(rank)] = *known;
  }
}

StepLine refused(const std::string& why) {
  StepLine line;
  line.error = why;
  return line;
}

}  // namespace

StepLine parse_step_line(std::string_view line) {
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) return refused("a line is no JSON object");
  StepLine parsed;
  if (const auto lines = number_in(object, "left_out")) {
    parsed.left_out.lines = *lines;
    return parsed;
  }
  StepRow row;
  const auto rank = number_in(object, "rank"), step = number_in(object, "step"), begin = number_in(object, "begin"),
             time = number_in(object, "time");
  const auto bars = object.find("bars");
  if (!rank || !step || !begin || !time || bars == object.end() || !bars->is_object())
    return refused("a line has no rank, step, begin, time or bars");
  row.rank = *rank;
  row.step = *step;
  row.begin = *begin;
  row.time = *time;
  for (std::size_t i = 0; i < kBars; ++i) row.bars[i] = number_in(*bars, kBarNames[i]);
  row.hidden_transfer = number_in(object, "hidden_transfer").value_or(0);
  row.gc = number_in(object, "gc");
  row.run_queue = number_in(object, "run_queue");
  row.samples = number_in(object, "samples");
  row.work = number_in(object, "work");
  const auto notes = object.find("notes");
  row.is_timed =
      notes == object.end() || !notes->is_array() || std::ranges::find(*notes, "no_device_time") == notes->end();
  read_late(object, row);
  if (sum_of(row) != row.time) {
    return refused(
        say("rank ", row.rank, ", step ", row.step, ": the bars sum to ", sum_of(row), " ns, the step is ", row.time));
  }
  parsed.row = std::move(row);
  return parsed;
}

StepRecord record_of(const StepRow& row) {
  StepRecord record;
  record.number = static_cast<std::uint64_t>(row.step);
  record.begin = TimePoint(std::chrono::nanoseconds(row.begin));
  record.end = record.begin + std::chrono::nanoseconds(row.time);
  for (std::size_t i = 0; i < kBars; ++i) {
    record.bars[i] = std::chrono::nanoseconds(row.bars[i].value_or(0));
    if (row.bars[i]) record.known |= bit_of(static_cast<Bar>(i));
  }
  record.hidden_transfer_ns = row.hidden_transfer;
  if (!row.is_timed) record.flags = kNoDeviceTime;
  record.gc_ns = row.gc.value_or(kNotKnown);
  record.run_queue_ns = row.run_queue.value_or(kNotKnown);
  record.samples = row.samples.value_or(kNotKnown);
  record.work = row.work.value_or(kNotKnown);
  std::vector<std::pair<std::int64_t, std::int64_t>> late(row.late.begin(), row.late.end());
  std::ranges::sort(late, std::greater{}, &std::pair<std::int64_t, std::int64_t>::second);
  for (std::size_t i = 0; i < std::min(late.size(), StepRecord::kLateRanks); ++i) {
    record.late_ranks[i] = static_cast<std::int32_t>(late[i].first);
    record.late_skews[i] = std::chrono::nanoseconds(late[i].second);
  }
  return record;
}

std::string steps_setting_of(const std::string& folder) {
  return folder + "/steps.jsonl";
}

std::string steps_file_of(const std::string& folder, int rank) {
  return rank == 0 ? steps_setting_of(folder) : folder + "/steps.rank" + std::to_string(rank) + ".jsonl";
}

}  // namespace horo::tools
