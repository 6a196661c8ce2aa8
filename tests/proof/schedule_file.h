// Schedules in a file, as a user would write them.
#pragma once

#include <string>

#include "ring/schedule/schedule.h"

namespace horo::proof {

// The makers' schedules for the shape, under the name "from a file"; gone with this object.
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
