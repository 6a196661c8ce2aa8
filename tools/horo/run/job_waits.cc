#include "tools/horo/run/job_waits.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "elastic/texts.h"

namespace horo::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWaitsSchema = 1;

// Texts of several lines, which ranks have sent.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(printable(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

std::string text_of_lines(const Json& lines) {
  std::string text;
  for (const Json& line : lines) text += (text.empty() ? "" : "\n") + line.get<std::string>();
  return text;
}

Json json_of(const RankStart& start) {
  return {{"id", start.id},
          {"has_called_init", start.has_called},
          {"is_connected", start.is_connected},
          {"waits_s", start.waits_s ? Json(*start.waits_s) : Json(nullptr)},
          {"site", lines_of(start.site)},
          {"process", printable(start.process)}};
}

RankStart start_from(const Json& json) {
  RankStart start;
  start.id = json.at("id").get<int>();
  start.has_called = json.at("has_called_init").get<bool>();
  start.is_connected = json.at("is_connected").get<bool>();
  if (!json.at("waits_s").is_null()) start.waits_s = json.at("waits_s").get<double>();
  start.site = text_of_lines(json.at("site"));
  start.process = json.at("process").get<std::string>();
  return start;
}

Json json_of(const WaitReport::Wait& wait) {
  Json names = Json::array();
  for (const std::string& name : wait.names) names.push_back(printable(name));
  return {{"what", wait.is_join ? "join" : "tensors"},
          {"tensors", names},
          {"more_tensors", wait.more},
          {"of_set", printable(wait.of_set)},
          {"waiting", wait.submitted},
          {"missing", wait.missing},
          {"partly", wait.partly},
          {"waited_s", static_cast<double>(wait.waited.count()) / 1e3}};
}

WaitReport::Wait wait_from(const Json& json) {
  WaitReport::Wait wait;
  wait.is_join = json.at("what").get<std::string>() == "join";
  wait.names = json.at("tensors").get<std::vector<std::string>>();
  wait.more = json.at("more_tensors").get<std::uint32_t>();
  wait.of_set = json.at("of_set").get<std::string>();
  wait.submitted = json.at("waiting").get<std::vector<int>>();
  wait.missing = json.at("missing").get<std::vector<int>>();
  wait.partly = json.at("partly").get<bool>();
  wait.waited = std::chrono::milliseconds(static_cast<std::int64_t>(json.at("waited_s").get<double>() * 1e3));
  return wait;
}

Json json_of(const WaitReport& report) {
  Json json = {{"waits", Json::array()},
               {"more_waits", report.more},
               {"size", report.size},
               {"left", report.left},
               {"deadlock", report.deadlocked},
               {"sites", Json::array()},
               {"oldest_in_flight", printable(report.in_flight)}};
  for (const WaitReport::Wait& wait : report.waits) json["waits"].push_back(json_of(wait));
  for (const CallSites& site : report.sites) {
    json["sites"].push_back({{"ranks", site.ranks}, {"answered", site.answered}, {"lines", lines_of(site.text)}});
  }
  return json;
}

WaitReport report_from(const Json& json) {
  WaitReport report;
  for (const Json& wait : json.at("waits")) report.waits.push_back(wait_from(wait));
  report.more = json.at("more_waits").get<std::uint32_t>();
  report.size = json.at("size").get<int>();
  report.left = json.at("left").get<std::vector<int>>();
  report.deadlocked = json.at("deadlock").get<std::vector<int>>();
  for (const Json& site : json.at("sites")) {
    report.sites.push_back(
        {site.at("ranks").get<std::vector<int>>(), site.at("answered").get<bool>(), text_of_lines(site.at("lines"))});
  }
  report.in_flight = json.at("oldest_in_flight").get<std::string>();
  return report;
}

JobWaits waits_from(const Json& json) {
  if (json.at("schema").get<int>() != kWaitsSchema) {
    throw std::runtime_error("it runs under another version of horo: use that version's horo why");
  }
  JobWaits waits;
  waits.status = status_from_json(json.at("status").dump());
  for (const Json& start : json.at("starts")) waits.starts.push_back(start_from(start));
  if (!json.at("report").is_null()) waits.report = report_from(json.at("report"));
  waits.fault = json.at("fault").get<std::string>();
  return waits;
}

}  // namespace

std::string to_json(const JobWaits& waits) {
  Json json = {{"schema", kWaitsSchema},
               {"status", Json::parse(to_json(waits.status))},
               {"starts", Json::array()},
               {"report", waits.report ? json_of(*waits.report) : Json(nullptr)},
               {"fault", printable(waits.fault)}};
  for (const RankStart& start : waits.starts) json["starts"].push_back(json_of(start));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

JobWaits waits_from_json(const std::string& json) {
  try {
    return waits_from(Json::parse(json));
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(std::string("its answer is not valid: ") + error.what());
  }
}

}  // namespace horo::tools
