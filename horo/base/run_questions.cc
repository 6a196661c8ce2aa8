#include "horo/base/run_questions.h"

#include <fcntl.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "horo/base/ancestors.h"
#include "horo/base/forked.h"
#include "horo/base/log.h"
#include "horo/base/run_place.h"

namespace horo {

RunQuestions::~RunQuestions() {
  if (bell_ >= 0 && give_up_descriptor(bell_)) ::close(bell_);
}

// A launcher between the guard and this process may have closed what it inherited, so the pipe is opened anew.
void RunQuestions::open(const Config& config) {
  if (std::exchange(is_open_, true)) return;
  try {
    const RunPlace place = place_of_rank(config);
    if (!place.table || place.guard == 0 || place.table->bell() < 0) return;
    bell_ = open_of(place.guard, place.table->bell(), O_RDONLY | O_NONBLOCK);
    if (bell_ < 0) return;
    own_descriptor(bell_);
    table_ = place.table;
    if (table_->answer_to(table_->asked())) last_ = table_->asked();
  } catch (const std::bad_alloc&) {
    log_debug("no memory to find the guard of horo run: horo why cannot ask this rank");
  }
}

std::optional<std::uint32_t> RunQuestions::next() {
  if (!table_) return std::nullopt;
  const std::uint32_t asked = table_->asked();
  if (std::exchange(last_, asked) == asked) return std::nullopt;
  return asked;
}

void RunQuestions::answer(std::uint32_t question, std::span<const std::byte> bytes) {
  if (table_) table_->answer(question, bytes);
}

}  // namespace horo
