#include "elastic/service/order_queue.h"

namespace horo {
namespace {

constexpr std::size_t kHeadBytes = 16;  // about that, of any order

}  // namespace

std::size_t OrderSizes::of(const HostOrder& order) {
  if (const auto* line = std::get_if<StoryTold>(&order)) return kHeadBytes + line->text.size();
  if (const auto* end = std::get_if<EndJob>(&order)) return kHeadBytes + end->text.size();
  const auto* sent = std::get_if<SendToMembers>(&order);
  if (sent == nullptr) return kHeadBytes;
  if (last_.lock() != sent->message) {
    last_ = sent->message;
    last_bytes_ = encode(*sent->message).size();
  }
  return kHeadBytes + last_bytes_;
}

}  // namespace horo
