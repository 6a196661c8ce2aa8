#include "tools/horo/run/job_status.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "elastic/texts.h"

namespace horo::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostWords = 64;  // of the command line

template <class Value>
Json json_of(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class Value>
std::optional<Value> optional_at(const Json& json, const char* key) {
  const Json& value = json.at(key);
  return value.is_null() ? std::nullopt : std::optional<Value>(value.get<Value>());
}

Json json_of(const std::vector<std::string>& command) {
  Json words = Json::array();
  for (const std::string& word : command) {
    if (words.size() == kMostWords) {
      words.push_back("...");
      break;
    }
    words.push_back(printable(word));
  }
  return words;
}

Json json_of(const StepFigures& steps) {
  Json bars = Json::object();
  for (std::size_t bar = 0; bar < kBars; ++bar) {
    const bool is_known = (steps.known & bit_of(static_cast<Bar>(bar))) != 0;
    bars[std::string(kBarNames[bar])] = is_known ? Json(steps.bars[bar]) : Json(nullptr);
  }
  return {{"steps", steps.steps},
          {"counted", steps.counted},
          {"step_ns", steps.step},
          {"bars_ns", bars},
          {"hidden_transfer_ns", steps.hidden_transfer},
          {"waits_of_others_ns", json_of(steps.waits)},
          {"samples_per_s", json_of(steps.samples_per_s)},
          {"age_s", steps.age_s}};
}

StepFigures steps_from(const Json& json) {
  StepFigures steps;
  steps.steps = json.at("steps").get<std::int64_t>();
  steps.counted = json.at("counted").get<std::int64_t>();
  steps.step = json.at("step_ns").get<std::int64_t>();
  for (std::size_t bar = 0; bar < kBars; ++bar) {
    const auto value = optional_at<std::int64_t>(json.at("bars_ns"), kBarNames[bar].data());
    steps.bars[bar] = value.value_or(0);
    steps.known |= value ? bit_of(static_cast<Bar>(bar)) : 0;
  }
  steps.hidden_transfer = json.at("hidden_transfer_ns").get<std::int64_t>();
  steps.waits = optional_at<std::int64_t>(json, "waits_of_others_ns");
  steps.samples_per_s = optional_at<double>(json, "samples_per_s");
  steps.age_s = json.at("age_s").get<double>();
  return steps;
}

Json json_of(const MemberStatus& member) {
  Json json = {{"id", member.id},
               {"rank", json_of(member.rank)},
               {"pid", member.pid},
               {"state", member.state},
               {"text", printable(member.text)},
               {"figures", nullptr},
               {"steps", member.steps ? json_of(*member.steps) : Json(nullptr)}};
  if (const auto& figures = member.figures) {
    json["figures"] = {{"answered", figures->is_answer},  {"age_s", figures->age_s},
                       {"rounds", figures->rounds},       {"collectives", figures->collectives},
                       {"in_flight", figures->in_flight}, {"oldest", printable(figures->oldest)}};
  }
  return json;
}

MemberStatus member_from(const Json& json) {
  MemberStatus member;
  member.id = json.at("id").get<int>();
  member.rank = optional_at<int>(json, "rank");
  member.pid = json.at("pid").get<pid_t>();
  member.state = json.at("state").get<std::string>();
  member.text = json.at("text").get<std::string>();
  if (const Json& figures = json.at("figures"); !figures.is_null()) {
    member.figures = {figures.at("rounds").get<std::uint64_t>(),
                      figures.at("collectives").get<std::uint64_t>(),
                      figures.at("in_flight").get<std::uint64_t>(),
                      figures.at("oldest").get<std::string>(),
                      figures.at("age_s").get<double>(),
                      figures.at("answered").get<bool>()};
  }
  if (json.contains("steps") && !json.at("steps").is_null()) member.steps = steps_from(json.at("steps"));
  return member;
}

JobStatus status_from(const Json& json) {
  if (json.at("schema").get<int>() != kStatusSchema) {
    throw std::runtime_error("it runs under another version of horo: use that version's horo status");
  }
  JobStatus status;
  status.job = json.at("job").get<pid_t>();
  status.process = json.at("process").get<pid_t>();
  status.title = json.at("title").get<std::string>();
  status.command = json.at("command").get<std::vector<std::string>>();
  status.started_s = json.at("started_s").get<double>();
  status.age_s = json.at("age_s").get<double>();
  status.ranks = json.at("ranks").get<int>();
  status.size = json.at("size").get<int>();
  status.min_ranks = optional_at<int>(json, "min_np");
  status.slots = status.size;  // a guard that was started before an installation tells none
  if (json.contains("slots")) status.slots = optional_at<int>(json, "slots").value_or(status.size);
  status.epoch = json.at("epoch").get<std::uint32_t>();
  status.is_parked = json.at("parked").get<bool>();
  for (const Json& member : json.at("members")) status.members.push_back(member_from(member));
  if (json.contains("checkpoint")) status.checkpoint = optional_at<std::uint64_t>(json, "checkpoint");
  status.late = json.value("late", "");  // a guard that was started before an installation tells none
  status.dropped = json.at("story_dropped").get<std::uint64_t>();
  for (const Json& line : json.at("story")) {
    status.story.push_back({line.at("time_s").get<double>(), line.at("text").get<std::string>()});
  }
  return status;
}

}  // namespace

std::string to_json(const JobStatus& status) {
  Json json = {{"schema", kStatusSchema},
               {"job", status.job},
               {"process", status.process},
               {"title", status.title},
               {"command", json_of(status.command)},
               {"started_s", status.started_s},
               {"age_s", status.age_s},
               {"ranks", status.ranks},
               {"size", status.size},
               {"elastic", status.min_ranks.has_value()},
               {"min_np", json_of(status.min_ranks)},
               {"slots", status.min_ranks ? Json(status.slots) : Json(nullptr)},
               {"epoch", status.epoch},
               {"parked", status.is_parked},
               {"members", Json::array()},
               {"checkpoint", json_of(status.checkpoint)},
               {"late", printable(status.late)},
               {"story_dropped", status.dropped},
               {"story", Json::array()}};
  for (const MemberStatus& member : status.members) json["members"].push_back(json_of(member));
  for (const StoryLine& line : status.story) {
    json["story"].push_back({{"time_s", line.time_s}, {"text", line.text}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

JobStatus status_from_json(const std::string& json) {
  try {
    return status_from(Json::parse(json));
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(std::string("its answer is not valid: ") + error.what());
  }
}

}  // namespace horo::tools
