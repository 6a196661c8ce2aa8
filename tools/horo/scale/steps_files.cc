#include "tools/horo/scale/steps_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "horo/base/say.h"

namespace horo::tools {
namespace {

std::vector<StepRow> read_rank(const std::string& path, StepsOfRun& steps) {
  std::vector<StepRow> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    StepLine parsed = parse_step_line(line);
    if (parsed.row) rows.push_back(std::move(*parsed.row));
    steps.left_out += parsed.left_out.lines;
    const bool is_cut = file.eof();  // without an end: the rank was writing when it was ended
    if (!parsed.error.empty() && !is_cut && steps.error.empty()) steps.error = say(path, ": ", parsed.error);
  }
  return rows;
}

}  // namespace

void GrowingSteps::look(const std::function<void(const StepRow&)>& on_row) {
  if (!file_.is_open()) file_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file_.is_open()) return;
  std::array<char, 64 << 10> bytes;
  for (ssize_t got = 0; (got = ::read(file_.get(), bytes.data(), bytes.size())) > 0;) {
    rest_.append(bytes.data(), static_cast<std::size_t>(got));
  }
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const StepLine line = parse_step_line(std::string_view(rest_).substr(begin, end - begin));
    if (line.row) on_row(*line.row);
  }
  rest_.erase(0, begin);
}

std::int64_t last_step_in(const std::string& path) {
  constexpr std::streamoff kMostBytes = 64 << 10;  // of a few lines
  std::ifstream file(path, std::ios::ate);
  if (!file) return 0;
  file.seekg(std::max<std::streamoff>(0, file.tellg() - kMostBytes));
  std::int64_t last = 0;
  for (std::string line; std::getline(file, line);) {
    if (const StepLine parsed = parse_step_line(line); parsed.row) last = parsed.row->step;
  }
  return last;
}

StepsOfRun read_steps(const std::string& folder, int ranks) {
  StepsOfRun steps;
  for (int rank = 0; rank < ranks; ++rank) steps.by_rank.push_back(read_rank(steps_file_of(folder, rank), steps));
  return steps;
}

}  // namespace horo::tools
