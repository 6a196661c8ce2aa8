#include "tests/proof/schedule_file.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "horo/base/say.h"
#include "ring/schedule/schedule_json.h"

namespace horo::proof {

ScheduleFile::ScheduleFile(const Shape& shape, ScheduleMaker make) {
  static std::atomic<int> last{0};  // numbers files; orders nothing
  path_ = std::filesystem::temp_directory_path() / say("horo-proof-", ::getpid(), "-", ++last, ".json");
  GivenSchedules given{shape, {}};
  for (int member = 0; member < shape.size; ++member) {
    given.schedules.push_back(make(shape, member));
    given.schedules.back().name = "from a file";
  }
  std::ofstream(path_) << to_json(given);
}

ScheduleFile::~ScheduleFile() {
  std::remove(path_.c_str());
}

}  // namespace horo::proof
