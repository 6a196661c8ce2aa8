// A schedule file is accepted only if it is valid: an accepted one is written and read again to the same text.
#include <stdexcept>

#include "horo/base/check.h"
#include "ring/schedule/schedule_json.h"
#include "tests/fuzz/targets.h"

namespace horo {
namespace {

constexpr int kMostMembers = 3;

// Of every maker and size, made once.
std::vector<std::string> right_files() {
  std::vector<std::string> files;
  for (const NamedMaker& maker : all_schedule_makers()) {
    for (int size = 1; size <= kMostMembers; ++size) {
      GivenSchedules given;
      given.shape.kind = maker.kind;
      given.shape.size = size;
      for (int i = 0; i < size; ++i) given.schedules.push_back(maker.make(given.shape, i));
      files.push_back(to_json(given));
    }
  }
  return files;
}

}  // namespace

// Numbers and marks of a right file are changed, or the file is noise.
bool fuzz_schedules(std::span<const std::byte> bytes) {
  static const std::vector<std::string> files = right_files();
  FuzzInput input(bytes);
  const bool is_noise = input.below(8) == 0;
  std::string text = is_noise ? std::string(reinterpret_cast<const char*>(input.rest().data()), input.rest().size())
                              : files[input.below(files.size())];
  while (!is_noise && !input.is_empty()) {
    const std::size_t at = input.below(text.size());
    const auto with = static_cast<char>(input.number(1));
    if (text[at] >= '0' && text[at] <= '9') {
      text[at] = static_cast<char>('0' + static_cast<unsigned char>(with) % 10);
    } else {
      text[at] = with;
    }
  }
  try {
    const std::string read = to_json(schedules_from_json(text, "fuzzed"));
    HORO_CHECK(to_json(schedules_from_json(read, "again")) == read);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

}  // namespace horo
