// Schedules in a file, as users write them.
#pragma once

#include <string>

#include "ring/schedule/schedule.h"

namespace horo::proof {

// A temporary file with the schedules of a maker, under the name "from a file". The destructor removes it.
class ScheduleFile {
 public:
  ScheduleFile(const Shape& shape, ScheduleMaker make);
  ~ScheduleFile();
  ScheduleFile(const ScheduleFile&) = delete;
  ScheduleFile& operator=(const ScheduleFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace horo::proof
