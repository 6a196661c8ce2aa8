// A crash loop ends in one of two ways: joiners that fail alike prove a fault of the script, and a slot whose processes
// die again and again, such as that of a broken device, rests, while the other slots go on.
#include "tools/horo/run/respawns.h"

#include <algorithm>
#include <cctype>

#include "elastic/texts.h"

namespace horo::tools {
namespace {

std::chrono::milliseconds back_off_after(int restarts) {
  if (restarts == 0) return std::chrono::milliseconds(0);
  const std::chrono::seconds wait(std::int64_t{1} << std::min(restarts - 1, 10));
  return std::min(wait, Respawns::kLongestBackOff);
}

// Two processes print their own numbers: of a rank, a process, a time.
std::string without_numbers(const std::string& text) {
  std::string plain;
  for (const char letter : text) {
    if (std::isdigit(static_cast<unsigned char>(letter)) == 0) {
      plain += letter;
    } else if (plain.empty() || plain.back() != '#') {
      plain += '#';
    }
  }
  return plain;
}

}  // namespace

Respawns::Respawns(const RespawnConfig& config) : config_(config), places_(static_cast<std::size_t>(config.slots)) {}

void Respawns::on_joined(int slot, TimePoint now) {
  places_.at(static_cast<std::size_t>(slot)).joined = now;
  alike_.clear();
}

// A process that was a member for long begins the limits anew.
void Respawns::forget_old(Place& place, TimePoint now) const {
  if (place.joined && now - *place.joined >= kWindow) {
    place.in_a_row = 0;
    place.restarts.clear();
  }
  place.joined.reset();
  while (!place.restarts.empty() && now - place.restarts.front() >= kWindow) place.restarts.pop_front();
}

bool Respawns::take_back(int slot, TimePoint now) {
  Place& place = places_.at(static_cast<std::size_t>(slot));
  forget_old(place, now);
  if (is_stopped_ || are_alike_ || place.restarts.size() >= static_cast<std::size_t>(config_.restarts)) return false;
  place.restarts.push_back(now);
  ++place.in_a_row;
  return true;
}

void Respawns::on_lost(const SlotLoss& loss, TimePoint now) {
  Place& place = places_.at(static_cast<std::size_t>(loss.slot));
  forget_old(place, now);
  place.instead = loss.rank;
  if (!loss.had_joined) count_failed_joiner(loss);
  if (config_.restarts == 0) return;
  if (place.restarts.size() >= static_cast<std::size_t>(config_.restarts)) return rest(place, loss.rank, now);
  place.due = now + back_off_after(place.in_a_row);
  if (!plain_due_ && !is_plain_told_) plain_due_ = {now + kPlainPatience, loss.rank};
}

void Respawns::rest(Place& place, std::uint32_t rank, TimePoint now) {
  if (!is_stopped_ && !are_alike_) {
    lines_.push_back("rank " + std::to_string(rank) + " is not replaced for " + duration_text(config_.cool_down) +
                     " (--cool-down): " + std::to_string(config_.restarts) +
                     (config_.restarts == 1 ? " rank was" : " ranks were") +
                     " started in its place within 10 min (--restarts)");
  }
  place.restarts.clear();
  place.in_a_row = 0;
  place.due = now + config_.cool_down;
}

void Respawns::count_failed_joiner(const SlotLoss& loss) {
  if (are_alike_ || ++alike_[loss.kind + "\n" + without_numbers(loss.line)] < kMostAlike) return;
  are_alike_ = true;
  if (is_stopped_) return;
  lines_.push_back("no rank is started any more, because " + std::to_string(kMostAlike) +
                   " ranks have failed alike before they joined: " + loss.kind +
                   (loss.line.empty() ? "" : ", " + printable(loss.line)));
}

void Respawns::on_left(int slot) {
  Place& place = places_.at(static_cast<std::size_t>(slot));
  place.due.reset();
  place.joined.reset();
}

int Respawns::grow_to(int slots, TimePoint now) {
  alike_.clear();
  are_alike_ = false;
  for (Place& place : places_) {
    if (!place.instead) continue;
    place.restarts.clear();
    place.in_a_row = 0;
    place.due = now;
  }
  while (static_cast<int>(places_.size()) < slots) places_.push_back({now, {}, {}, 0, {}});
  return static_cast<int>(std::count_if(places_.begin(), places_.end(), [](const Place& one) { return one.due; }));
}

Respawns::Decided Respawns::pass_time(TimePoint now, const Growth& growth) {
  now_ = now;
  Decided decided;
  if (growth.was_offered) {
    plain_due_.reset();
    is_plain_told_ = true;
  }
  if (plain_due_ && plain_due_->first <= now && !is_stopped_) {
    lines_.push_back("rank " + std::to_string(plain_due_->second) +
                     " is not replaced: no rank is in a function of horo.elastic.run (docs/elastic.md)");
    plain_due_.reset();
    is_plain_told_ = true;
  }
  for (std::size_t slot = 0; slot < places_.size(); ++slot) {
    Place& place = places_[slot];
    if (!place.due || *place.due > now || !growth.can_grow || is_stopped_ || are_alike_) continue;
    decided.starts.push_back({static_cast<int>(slot), place.instead});
    if (place.instead) place.restarts.push_back(now);
    ++place.in_a_row;
    place.due.reset();
    place.instead.reset();
  }
  decided.lines.swap(lines_);
  return decided;
}

bool Respawns::starts_until(TimePoint until) const {
  if (is_stopped_ || are_alike_) return false;
  return std::any_of(places_.begin(), places_.end(), [&](const Place& one) { return one.due && *one.due <= until; });
}

std::optional<TimePoint> Respawns::next_deadline() const {
  std::optional<TimePoint> next;
  const auto add = [&](TimePoint due) { next = std::min(due, next.value_or(due)); };
  if (!lines_.empty()) add(now_);
  if (is_stopped_) return next;
  for (const Place& place : places_) {
    if (place.due && *place.due > now_ && !are_alike_) add(*place.due);
  }
  if (plain_due_ && plain_due_->first > now_) add(plain_due_->first);
  return next;
}

}  // namespace horo::tools
