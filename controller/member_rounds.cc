// Rounds of this rank. In a message the begins of rounds precede all reports, and the failure of a round follows them.
// So a message ends where a round begins and the message has reports of the stream's last round, and where a round
// fails.
#include <algorithm>
#include <utility>

#include "controller/member.h"

namespace horo {
namespace {

// Cut before a character (UTF-8) that does not fit.
std::string cut_reason(const std::string& reason) {
  std::size_t size = std::min(reason.size(), kMaxReasonBytes);
  while (size < reason.size() && size > 0 && (static_cast<unsigned char>(reason[size]) & 0xC0U) == 0x80U) --size;
  return reason.substr(0, size);
}

}  // namespace

// A program may begin rounds and never report a tensor, so the begins that wait are limited too.
void Member::on(const RoundBegun& event, TimePoint now) {
  if (sets_.find(event.stream.set) == nullptr) return;
  if (has_queued(event.stream)) complete_reports_.push_back(collect(now));
  std::erase_if(queued_rounds_, [&](const RoundBegun& begun) { return begun.stream == event.stream; });
  if (queued_rounds_.size() >= config_.max_round_streams) queued_rounds_.erase(queued_rounds_.begin());
  queued_rounds_.push_back(event);
}

void Member::on(const RoundFailed& event, TimePoint now) {
  if (sets_.find(event.stream.set) == nullptr) return;
  UpMessage report = collect(now);
  if (report.empty()) report.rounds = std::exchange(queued_rounds_, {});
  report.failed_rounds.push_back({event.stream, cut_reason(event.reason)});
  complete_reports_.push_back(std::move(report));
}

bool Member::is_of(const RoundStream& stream, Key key) const {
  const auto found = tensors_.find(key);
  return found != tensors_.end() && found->second.spec.round_stream == stream.number &&
         found->second.spec.set == stream.set;
}

// True if a report of the stream is queued.
bool Member::has_queued(const RoundStream& stream) {
  const auto is_tensor = [&](Key key) { return is_of(stream, key) && tensor(key).queued; };
  const auto is_plan = [&](PlanId id) {
    const KnownPlan& p = plan(id);
    return p.queued && std::any_of(p.keys.begin(), p.keys.end(), [&](Key key) { return is_of(stream, key); });
  };
  return std::any_of(queued_.begin(), queued_.end(), is_tensor) ||
         std::any_of(queued_plans_.begin(), queued_plans_.end(), is_plan);
}

}  // namespace horo
