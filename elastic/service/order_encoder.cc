#include "elastic/service/order_encoder.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace horo {
namespace {

constexpr std::size_t kKeptEncodings = 4;
constexpr char kOrdersTag = 1 << 3 | 2;  // field 1, bytes

grpc::Slice slice_of(const std::vector<std::byte>& bytes) {
  return {bytes.data(), bytes.size()};
}

// The field of an Orders before its bytes.
std::string field_head(std::size_t bytes) {
  std::string head(1, kOrdersTag);
  for (; bytes >= 0x80; bytes >>= 7) head += static_cast<char>((bytes & 0x7f) | 0x80);
  return head += static_cast<char>(bytes);
}

}  // namespace

void EncodedOrders::add(std::span<const grpc::Slice> order) {
  std::size_t bytes = 0;
  for (const grpc::Slice& slice : order) bytes += slice.size();
  slices_.emplace_back(field_head(bytes));
  slices_.insert(slices_.end(), order.begin(), order.end());
  ++count_;
  bytes_ += bytes;
}

void OrderEncoder::append(const HostOrder& order, EncodedOrders& orders) {
  if (const auto* sent = std::get_if<SendToMembers>(&order)) {
    const grpc::Slice message = shared(sent->message, [&] { return encode(*sent->message); });
    return orders.add(std::array{slice_of(encode_head(*sent, message.size())), message});
  }
  const auto whole = [&] { return encode(AgentSays(order)); };
  const auto* changed = std::get_if<JobChanged>(&order);
  orders.add(std::array{changed != nullptr ? shared(changed->change, whole) : slice_of(whole())});
}

template <class Encode>
grpc::Slice OrderEncoder::shared(const std::shared_ptr<const void>& what, const Encode& encode) {
  const auto is_it = [&](const Encoded& one) { return one.what.lock() == what; };
  if (const auto found = std::find_if(last_.begin(), last_.end(), is_it); found != last_.end()) return found->bytes;
  if (last_.size() == kKeptEncodings) last_.pop_front();
  last_.push_back({what, slice_of(encode())});
  return last_.back().bytes;
}

}  // namespace horo
