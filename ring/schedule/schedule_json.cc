// Every field is read through a cursor that holds the path to it, for error messages.

#include "ring/schedule/schedule_json.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "horo/base/say.h"
#include "ring/schedule/schedule_check.h"

namespace horo {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxFileBytes = 64 << 20;
constexpr std::size_t kMaxMembers = 256;
constexpr std::size_t kMaxChunks = kMaxMembers * kMaxMembers;
constexpr std::size_t kMaxItems = 1 << 20;  // of one list
constexpr int kLeast = -1;                  // of any number: kJoin, kFloating

class Cursor {
 public:
  Cursor(const json& value, std::string path) : value_(value), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& why) const { throw std::invalid_argument(path_ + ": " + why); }

  Cursor at(const char* key) const {
    if (!value_.is_object()) refuse("expected an object");
    const auto found = value_.find(key);
    if (found == value_.end()) refuse(say("has no \"", key, "\""));
    return {*found, path_ + ", " + key};
  }
  bool has(const char* key) const { return value_.is_object() && value_.contains(key); }

  int number(std::size_t most = kMaxChunks) const {
    if (!value_.is_number_integer()) refuse("expected a whole number");
    const auto found = value_.get<std::int64_t>();
    if (found < kLeast || found > static_cast<std::int64_t>(most)) {
      refuse(say("expected a number from ", kLeast, " to ", most));
    }
    return static_cast<int>(found);
  }
  int number_or(const char* key, int otherwise) const { return has(key) ? at(key).number() : otherwise; }

  bool truth_or(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    const Cursor found = at(key);
    if (!found.value_.is_boolean()) found.refuse("expected true or false");
    return found.value_.get<bool>();
  }

  std::string text() const {
    if (!value_.is_string() || value_.get_ref<const std::string&>().size() > 64) {
      refuse("expected a text of at most 64 bytes");
    }
    return value_.get<std::string>();
  }

  // Calls f with a cursor for each item of the list at `key`. A missing list is an empty one.
  template <class F>
  void each(const char* key, F f) const {
    if (!has(key)) return;
    const Cursor list = at(key);
    if (!list.value_.is_array() || list.value_.size() > kMaxItems)
      list.refuse(say("expected a list of at most ", kMaxItems));
    for (std::size_t i = 0; i < list.value_.size(); ++i) f(Cursor(list.value_[i], say(list.path_, " ", i)));
  }

 private:
  const json& value_;
  std::string path_;
};

template <class Enum>
Enum named(const Cursor& cursor, std::optional<Enum> (*from)(int)) {
  const std::string word = cursor.text();
  for (int i = 0; i < 256; ++i) {
    if (const auto value = from(i); value && name_of(*value) == word) return *value;
  }
  cursor.refuse("\"" + word + "\" is not a valid name here");
}

Part read_part(const Cursor& from) {
  return {from.at("area").number(), from.at("first").number(), from.number_or("count", 1)};
}

Round read_round(const Cursor& from) {
  Round round;
  from.each("send", [&](const Cursor& one) { round.send.push_back({one.at("peer").number(), read_part(one)}); });
  from.each("receive", [&](const Cursor& one) { round.receive.push_back({one.at("peer").number(), read_part(one)}); });
  from.each("combine", [&](const Cursor& one) {
    Combine combine{read_part(one), {}};
    one.each("tree", [&](const Cursor& step) { combine.tree.push_back(step.number()); });
    round.combine.push_back(combine);
  });
  return round;
}

GivenSchedules read_all(const Cursor& from) {
  GivenSchedules given;
  Schedule head;
  head.name = from.at("name").text();
  head.kind = given.shape.kind = named(from.at("kind"), collective_kind_from);
  head.order = from.has("order") ? named(from.at("order"), order_from) : Order::kCanonical;
  head.chunks = from.at("chunks").number();
  given.shape.root = from.number_or("root", 0);
  from.each("members", [&](const Cursor& member) {
    Schedule one = head;
    one.member = static_cast<int>(given.schedules.size());
    member.each("scratch", [&](const Cursor& area) {
      one.scratch.push_back({area.number_or("chunks", 1), area.truth_or("accumulates", false),
                             area.number_or("base", Scratch::kFloating)});
    });
    member.each("rounds", [&](const Cursor& round) { one.rounds.push_back(read_round(round)); });
    given.schedules.push_back(std::move(one));
  });
  if (given.schedules.empty() || given.schedules.size() > kMaxMembers) {
    from.at("members").refuse(say("expected 1 to ", kMaxMembers, " members"));
  }
  given.shape.size = static_cast<int>(given.schedules.size());
  if (given.shape.root < 0 || given.shape.root >= given.shape.size) from.refuse("root: expected a member");
  for (Schedule& one : given.schedules) one.size = given.shape.size;
  return given;
}

json to_json(const Part& part) {
  return {{"area", part.area}, {"first", part.first}, {"count", part.count}};
}

json to_json(const Message& message) {
  json value = to_json(message.part);
  value["peer"] = message.peer;
  return value;
}

json to_json(const Schedule& schedule) {
  json scratch = json::array(), rounds = json::array();
  for (const Scratch& area : schedule.scratch) {
    scratch.push_back({{"chunks", area.chunks}, {"accumulates", area.accumulates}, {"base", area.base}});
  }
  for (const Round& round : schedule.rounds) {
    json send = json::array(), receive = json::array(), combine = json::array();
    for (const Message& message : round.send) send.push_back(to_json(message));
    for (const Message& message : round.receive) receive.push_back(to_json(message));
    for (const Combine& one : round.combine) {
      json value = to_json(one.to);
      value["tree"] = one.tree;
      combine.push_back(value);
    }
    rounds.push_back({{"send", send}, {"receive", receive}, {"combine", combine}});
  }
  return {{"scratch", scratch}, {"rounds", rounds}};
}

}  // namespace

std::string to_json(const GivenSchedules& given) {
  const Schedule& head = given.schedules.front();
  json members = json::array();
  for (const Schedule& schedule : given.schedules) members.push_back(to_json(schedule));
  return json{{"name", head.name},
              {"kind", std::string(name_of(head.kind))},
              {"order", std::string(name_of(head.order))},
              {"root", given.shape.root},
              {"chunks", head.chunks},
              {"members", members}}
      .dump();
}

GivenSchedules schedules_from_json(std::string_view text, const std::string& origin) {
  const json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) throw std::invalid_argument(origin + ": expected JSON");
  GivenSchedules given = read_all(Cursor(value, origin));
  try {
    check_schedule(given.shape, given.schedules);
  } catch (const std::invalid_argument& fault) {
    throw std::invalid_argument(origin + ": " + fault.what());
  }
  return given;
}

GivenSchedules read_schedules(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad() || (!file && text.empty())) throw std::invalid_argument(path + ": cannot be read");
  if (text.size() > kMaxFileBytes) throw std::invalid_argument(path + ": expected a file of at most 64 MiB");
  return schedules_from_json(text, path);
}

}  // namespace horo
