#include "horo/engine/ready_times.h"

#include <algorithm>
#include <cstdio>

#include "horo/base/json_text.h"

namespace horo {
namespace {

TimePoint first_of(const std::vector<ReadyTime>& times) {
  TimePoint first = TimePoint::max();
  for (const ReadyTime& time : times) {
    for (const TimePoint since : time.since) {
      if (since != TimePoint::min()) first = std::min(first, since);
    }
  }
  return first;
}

std::string milliseconds_text(TimePoint since, TimePoint first) {
  if (since == TimePoint::min()) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", std::chrono::duration<double, std::milli>(since - first).count());
  return text;
}

}  // namespace

std::string ready_times_json(const std::vector<ReadyTime>& times) {
  const TimePoint first = first_of(times);
  std::string json = "{";
  for (const ReadyTime& time : times) {
    json += (json.size() > 1 ? ", " : "") + json_quoted(time.name) + ": [";
    for (std::size_t rank = 0; rank < time.since.size(); ++rank) {
      json += (rank > 0 ? ", " : "") + milliseconds_text(time.since[rank], first);
    }
    json += "]";
  }
  return json + "}";
}

}  // namespace horo
