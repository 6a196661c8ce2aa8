#include "tools/horo/doctor/doctor.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace horo::tools {
namespace {

using nlohmann::ordered_json;

struct JsonOf {
  ordered_json operator()(std::monostate) const { return nullptr; }
  template <class T>
  ordered_json operator()(const T& value) const {
    return value;
  }
};

struct TextOf {
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(bool value) const { return value ? "yes" : "no"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(const std::string& value) const { return value; }
};

ordered_json json_of(const std::vector<Finding>& findings) {
  ordered_json list = ordered_json::array();
  for (const Finding& one : findings) list.push_back({{"what", one.what}, {"advice", one.advice}});
  return list;
}

void write(std::ostream& out, const char* title, const std::vector<Finding>& findings) {
  if (findings.empty()) return;
  out << "\n" << title << "\n";
  for (const Finding& one : findings) out << "  " << one.what << "\n    -> " << one.advice << "\n";
}

}  // namespace

DoctorReport examine() {
  DoctorReport report;
  examine_build(report);
  examine_libraries(report);
  examine_machine(report);
  examine_limits(report);
  examine_network(report);
  examine_settings(report);
  examine_by_running(report);
  return report;
}

std::string to_json(const DoctorReport& report) {
  ordered_json json;
  for (const Section& section : report.sections) {
    ordered_json& facts = json[section.name] = ordered_json::object();
    for (const Fact& fact : section.facts) facts[fact.name] = std::visit(JsonOf(), fact.value);
  }
  json["problems"] = json_of(report.problems);
  json["hints"] = json_of(report.hints);
  // Names of interfaces and paths may hold any bytes.
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string to_text(const DoctorReport& report) {
  std::ostringstream out;
  for (const Section& section : report.sections) {
    out << (&section == &report.sections.front() ? "" : "\n") << section.name << "\n";
    std::size_t width = 0;
    for (const Fact& fact : section.facts) width = std::max(width, fact.name.size());
    for (const Fact& fact : section.facts) {
      out << "  " << fact.name << std::string(width - fact.name.size() + 2, ' ') << std::visit(TextOf(), fact.value)
          << "\n";
    }
  }
  write(out, "hints", report.hints);
  write(out, "problems", report.problems);
  const std::size_t count = report.problems.size();
  out << "\n" << (count == 0 ? "No problem" : std::to_string(count) + (count == 1 ? " problem" : " problems")) << ".\n";
  return out.str();
}

int doctor(bool json) {
  const DoctorReport report = examine();
  std::cout << (json ? to_json(report) : to_text(report));
  return report.problems.empty() ? 0 : 1;
}

}  // namespace horo::tools
