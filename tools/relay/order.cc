#include "tools/relay/order.h"

#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace horo::tools::relay {
namespace {

using Units = std::map<std::string, double>;

const Units& times() {
  static const Units units{{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  return units;
}

const Units& rates() {
  static const Units units{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
  return units;
}

const Units& sizes() {
  static const Units units{{"KiB", 1 << 10}, {"MiB", 1 << 20}};
  return units;
}

const Units& probabilities() {
  static const Units units{{"", 1}, {"%", 0.01}};
  return units;
}

[[noreturn]] void refuse(const std::string& text, const std::string& expected) {
  throw std::invalid_argument("\"" + text + "\": expected " + expected);
}

double number_in(const std::string& text, const Units& units) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto found = units.find(std::string(end, text.data() + text.size()));
  const bool is_number = error == std::errc() && std::isfinite(number) && number >= 0;
  if (text == "0") return 0;
  if (!is_number || found == units.end()) {
    std::string names;
    for (const auto& [name, factor] : units) names += " " + (name.empty() ? "(nothing)" : name);
    refuse(text, "a number that is not negative, and one of the units" + names);
  }
  return number * found->second;
}

Duration time_in(const std::string& text) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(number_in(text, times())));
}

double probability_in(const std::string& text) {
  const double value = number_in(text, probabilities());
  if (value > 1) refuse(text, "a probability, 0 to 1 or 0% to 100%");
  return value;
}

using Change = std::function<void(LinkSettings&)>;

struct Verb {
  const char* name;
  const char* value;  // an example; empty: the order has no value
  const char* what;
  Change (*change)(const std::string& value);
};

Change passage(Passage wanted) {
  return [wanted](LinkSettings& link) { link.passage = wanted; };
}

template <auto kField, auto kParse>
Change assign(const std::string& text) {
  const auto value = kParse(text);
  return [value](LinkSettings& link) { link.*kField = value; };
}

double rate_in(const std::string& text) {
  return number_in(text, rates());
}

std::size_t size_in(const std::string& text) {
  return static_cast<std::size_t>(number_in(text, sizes()));
}

constexpr std::array<Verb, 10> kVerbs{{
    {"delay", "10ms", "of every packet, one way", assign<&LinkSettings::delay, time_in>},
    {"jitter", "500us", "maximum of an additional random delay; packets keep their order",
     assign<&LinkSettings::jitter, time_in>},
    {"loss", "0.1%", "share of segments that are lost", assign<&LinkSettings::loss, probability_in>},
    {"reorder", "1%", "share of segments that arrive a millisecond late",
     assign<&LinkSettings::reorder, probability_in>},
    {"corrupt", "0.0001", "share of segments whose TCP payload is changed under a valid checksum",
     assign<&LinkSettings::corrupt, probability_in>},
    {"rate", "1gbit", "of an Ethernet; 0: no limit", assign<&LinkSettings::bits_per_second, rate_in>},
    {"queue", "64MiB", "bytes that may wait at that rate", assign<&LinkSettings::queue_bytes, size_in>},
    {"cut", "", "all packets are lost, including those in flight",
     [](const std::string&) { return passage(Passage::kCut); }},
    {"stall", "", "packets wait until the line is healed",
     [](const std::string&) { return passage(Passage::kStalled); }},
    {"heal", "", "the end of a cut or stall", [](const std::string&) { return passage(Passage::kOpen); }},
}};

}  // namespace

PacketOrder order_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  PacketOrder order;
  if (!words.empty() && (words.back() == "a->b" || words.back() == "b->a")) {
    order.a_to_b = words.back() == "a->b";
    order.b_to_a = !order.a_to_b;
    words.pop_back();
  }
  for (const Verb& verb : kVerbs) {
    if (words.empty() || words.front() != verb.name) continue;
    const bool has_value = *verb.value != '\0';
    if (words.size() != (has_value ? 2 : 1)) {
      refuse(text, std::string(verb.name) + (has_value ? std::string(" ") + verb.value : "") + ", and a->b or b->a");
    }
    order.change = verb.change(words.back());
    return order;
  }
  std::string names;
  for (const Verb& verb : kVerbs) names += std::string(" ") + verb.name;
  refuse(text, "one of" + names);
}

std::string orders_help() {
  std::ostringstream help;
  for (const Verb& verb : kVerbs) {
    const std::string example = std::string(verb.name) + " " + verb.value;
    help << "  " << example << std::string(16 - example.size(), ' ') << verb.what << "\n";
  }
  return help.str();
}

}  // namespace horo::tools::relay
