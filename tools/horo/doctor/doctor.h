// horo doctor: what horo was built with, what it finds on this machine, and what is wrong with it, with what to do.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace horo::tools {

// Null where the machine does not say, or has none.
using Value = std::variant<std::monostate, bool, std::int64_t, std::string>;

struct Fact {
  std::string name;  // with its unit as the last word: "memory_bytes"
  Value value;
};

struct Section {
  std::string name;
  std::vector<Fact> facts;

  void add(std::string name, Value value) { facts.push_back({std::move(name), std::move(value)}); }
};

// Something that keeps a job from running, or will (a problem), or that may explain why it is slow (a hint).
struct Ailment {
  std::string what;
  std::string advice;
};

struct DoctorReport {
  std::vector<Section> sections;
  std::vector<Ailment> problems;
  std::vector<Ailment> hints;

  // Valid until the next one is added.
  Section& section(std::string name) { return sections.emplace_back(Section{std::move(name), {}}); }
};

// Each adds its sections and what ails them. None of them throws because of what it finds.
void examine_build(DoctorReport& report);
void examine_libraries(DoctorReport& report);
void examine_machine(DoctorReport& report);
void examine_limits(DoctorReport& report);
void examine_network(DoctorReport& report);
void examine_settings(DoctorReport& report);
void examine_by_running(DoctorReport& report);  // an all_reduce of two ranks over loopback; some seconds at most

DoctorReport examine();
std::string to_json(const DoctorReport& report);
std::string to_text(const DoctorReport& report);
// Prints it; 0: no problem, 1: some.
int doctor(bool json);

}  // namespace horo::tools
