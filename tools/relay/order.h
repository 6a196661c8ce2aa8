// What is said to a relay: "delay 10ms", "loss 0.1% a->b", "cut", "stall b->a", "heal". Pure.
#pragma once

#include <functional>
#include <string>

#include "tools/relay/link.h"

namespace horo::tools::relay {

struct PacketOrder {
  bool a_to_b = true, b_to_a = true;  // what it is said of; neither named: both
  std::function<void(LinkSettings&)> change;
};

// Throws std::invalid_argument that says what was expected.
PacketOrder order_of(const std::string& text);

// All of them, for --help.
std::string orders_help();

}  // namespace horo::tools::relay
