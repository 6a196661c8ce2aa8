// horo doctor: the build of horo, the facts of this machine, and problems with their remedies.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace horo::tools {

// monostate: unknown, or not present.
using Value = std::variant<std::monostate, bool, std::int64_t, std::string>;

struct Fact {
  std::string name;  // the last word is the unit: "memory_bytes"
  Value value;
};

struct Section {
  std::string name;
  std::vector<Fact> facts;

  void add(std::string name, Value value) { facts.push_back({std::move(name), std::move(value)}); }
};

// A problem (it keeps jobs from running) or a hint (it may make them slow).
struct Finding {
  std::string what;
  std::string advice;
};

struct DoctorReport {
  std::vector<Section> sections;
  std::vector<Finding> problems;
  std::vector<Finding> hints;

  // The reference is valid until the next section is added.
  Section& section(std::string name) { return sections.emplace_back(Section{std::move(name), {}}); }
};

// Each function adds its sections, problems and hints. None throws because of the state of the machine.
void examine_build(DoctorReport& report);
void examine_libraries(DoctorReport& report);
void examine_machine(DoctorReport& report);
void examine_limits(DoctorReport& report);
void examine_network(DoctorReport& report);
void examine_settings(DoctorReport& report);
void examine_by_running(
    DoctorReport& report);  // an all_reduce of two ranks over loopback; blocks for some seconds at most

DoctorReport examine();
std::string to_json(const DoctorReport& report);
std::string to_text(const DoctorReport& report);
// Prints the report. Returns 0 if there is no problem, else 1.
int doctor(bool json);

}  // namespace horo::tools
