// Parses the orders of a relay: "delay 10ms", "loss 0.1% a->b", "cut", "stall b->a", "heal". Pure.
#pragma once

#include <functional>
#include <string>

#include "tools/relay/link.h"

namespace horo::tools::relay {

struct PacketOrder {
  bool a_to_b = true, b_to_a = true;  // the directions; both if the order names none
  std::function<void(LinkSettings&)> change;
};

// Throws std::invalid_argument with the expected values.
PacketOrder order_of(const std::string& text);

// A list of all orders, for --help.
std::string orders_help();

}  // namespace horo::tools::relay
