#include "bench/against/quiet.h"

#include <poll.h>

#include <fstream>
#include <sstream>

namespace horo::bench {
namespace {

constexpr int kIntervalMs = 100;

ProcessorTime processor_time_now() {
  std::ostringstream text;
  text << std::ifstream("/proc/stat").rdbuf();
  return processor_time(text.str());
}

}  // namespace

ProcessorTime processor_time(const std::string& stat) {
  // cpu  user nice system idle iowait irq softirq steal; the columns of guests are included in user and nice
  constexpr int kColumns = 8, kIdle = 3, kIoWait = 4;
  std::istringstream words(stat);
  std::string name;
  words >> name;
  ProcessorTime time;
  double value = 0;
  for (int column = 0; column < kColumns && words >> value; ++column) {
    time.all += value;
    if (column == kIdle || column == kIoWait) time.idle += value;
  }
  return time;
}

double idle_part(const ProcessorTime& before, const ProcessorTime& after) {
  const double all = after.all - before.all;
  return all > 0 ? (after.idle - before.idle) / all : 1;
}

bool wait_for_quiet(Duration patience) {
  const TimePoint end = Clock::now() + patience;
  ProcessorTime before = processor_time_now();
  do {
    ::poll(nullptr, 0, kIntervalMs);
    const ProcessorTime after = processor_time_now();
    if (idle_part(before, after) > kQuietPart) return true;
    before = after;
  } while (Clock::now() < end);
  return false;
}

}  // namespace horo::bench
