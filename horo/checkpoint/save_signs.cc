#include "horo/checkpoint/save_signs.h"

#include <algorithm>

#include "horo/base/say.h"
#include "ring/os/backoff.h"

namespace horo::checkpoint {
namespace {

// NFS shows a new name of a folder later than the end of the old one.
constexpr std::chrono::seconds kGoneTime{2};
constexpr std::chrono::seconds kBriefWait{2};

const std::string& first_part_of(const SavePlan& plan, std::size_t rank) {
  return std::ranges::lower_bound(plan.parts, rank, {}, &DealtPart::rank)->file;
}

}  // namespace

void Pauses::wait() {
  control_.pause(next_);
  next_ = std::min(next_ * 2, kLastPause);
}

void throw_failure(const SaveFolder& save) {
  if (const auto text = failure_in(save)) throw RankFailed(*text);
}

bool has_ended(const SavePlan& plan, std::size_t rank) {
  const Fd fd = open_file(plan.save.folder, first_part_of(plan, rank));
  return !fd.is_open() || probe_lock(fd) == LockResult::kLocked;
}

std::vector<bool> seen_locks(const SavePlan& plan) {
  std::vector<bool> seen(plan.ranks);
  for (std::size_t rank = 0; rank < (plan.rank == 0 ? plan.ranks : 1); ++rank) {
    try {
      const Fd fd = open_file(plan.save.folder, first_part_of(plan, rank));
      seen[rank] = fd.is_open() && probe_lock(fd) == LockResult::kBusy;
    } catch (const std::exception&) {  // not seen
    }
  }
  return seen;
}

EndWait::EndWait(const SavePlan& plan)
    : plan_(plan), until_(Clock::now() + 2 * plan.timeout), next_look_(Clock::now() + kLockPause) {}

bool EndWait::look() {
  try {
    if (seen_.empty()) seen_ = messages();
    if (is_published()) return true;
    trouble_.clear();
    check_limit();
  } catch (const RankFailed&) {
    throw;
  } catch (const std::exception& error) {
    trouble_ = say(": ", error.what());
    if (Clock::now() > until_) throw RankFailed(say("rank 0 cannot be seen", trouble_));
  }
  return false;
}

bool EndWait::is_published() {
  const SaveEnd end = end_of(plan_.save);
  if (end == SaveEnd::kPublished) return true;
  throw_failure(plan_.save);
  if (end != SaveEnd::kGone) gone_since_.reset();
  if (end == SaveEnd::kGone && !gone_since_) gone_since_ = Clock::now();
  if (gone_since_ && Clock::now() - *gone_since_ > kGoneTime) throw RankFailed("rank 0 has given the checkpoint up");
  if (Clock::now() < next_look_) return false;
  next_look_ = Clock::now() + kLockPause;
  if (!plan_.shows_death[0] || !has_ended(plan_, 0) || failure_in(plan_.save)) return false;
  const SaveEnd last = end_of(plan_.save);
  if (last == SaveEnd::kOpen) throw RankFailed("rank 0 has ended before the checkpoint was complete");
  return last != SaveEnd::kGone;
}

void EndWait::check_limit() {
  if (Clock::now() <= until_) return;
  std::vector<std::string> now = messages();
  if (now == seen_) {
    throw RankFailed(say("rank 0 has not published the checkpoint within ", plan_.timeout.count() / 1000,
                         " s after the last sign of a rank (HORO_CHECKPOINT_TIMEOUT_MS)"));
  }
  seen_ = std::move(now);
  until_ = Clock::now() + plan_.timeout;
}

std::vector<std::string> EndWait::messages() const {
  std::vector<std::string> names = names_in(plan_.save.folder);
  std::erase_if(names, [](const std::string& name) { return !is_message_file(name); });
  std::ranges::sort(names);
  return names;
}

void wait_for_end(const SavePlan& plan, SaveControl& control) {
  EndWait wait(plan);
  Pauses pauses(control);
  while (!wait.look()) pauses.wait();
}

bool is_published_after_all(const SavePlan& plan) noexcept {
  const TimePoint until = Clock::now() + kBriefWait;
  try {
    EndWait wait(plan);
    while (Clock::now() < until) {
      if (wait.look()) return true;
      back_off(kLastPause);
    }
  } catch (const std::exception&) {  // there is none
  }
  return false;
}

}  // namespace horo::checkpoint
