// OrderEncoder: encodes the orders of hosts for the wire. What many hosts get is encoded and held once.
#pragma once

#include "elastic/service/rpc.h"

// After rpc.h, whose headers come first.
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "elastic/host_messages.h"

namespace horo {

// The message Orders of rendezvous.proto.
class EncodedOrders {
 public:
  // An order is the bytes of one or two slices.
  void add(std::span<const grpc::Slice> order);
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return bytes_; }
  grpc::ByteBuffer buffer() const { return {slices_.data(), slices_.size()}; }

 private:
  std::vector<grpc::Slice> slices_;
  std::size_t count_ = 0, bytes_ = 0;
};

class OrderEncoder {
 public:
  void append(const HostOrder& order, EncodedOrders& orders);

 private:
  struct Encoded {
    std::weak_ptr<const void> what;
    grpc::Slice bytes;
  };
  template <class Encode>
  grpc::Slice shared(const std::shared_ptr<const void>& what, const Encode& encode);

  std::deque<Encoded> last_;
};

}  // namespace horo
