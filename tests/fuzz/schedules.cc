// A schedule file is taken only if it is right: what is taken is written and read again to the same text.
#include <stdexcept>

#include "horo/base/check.h"
#include "ring/schedule_json.h"
#include "tests/fuzz/targets.h"

namespace horo {
namespace {

// A right file of some maker and size.
std::string right_file(FuzzInput& input) {
  const auto& makers = all_schedule_makers();
  const NamedMaker& maker = makers[input.below(makers.size())];
  GivenSchedules given;
  given.shape.kind = maker.kind;
  given.shape.size = 1 + static_cast<int>(input.below(4));
  for (int i = 0; i < given.shape.size; ++i) given.schedules.push_back(maker.make(given.shape, i));
  return to_json(given);
}

}  // namespace

// Numbers and marks of a right file are changed, or the file is noise.
bool fuzz_schedules(std::span<const std::byte> bytes) {
  FuzzInput input(bytes);
  const bool is_noise = input.below(8) == 0;
  std::string text = is_noise ? std::string(reinterpret_cast<const char*>(input.rest().data()), input.rest().size())
                              : right_file(input);
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
