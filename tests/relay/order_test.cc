#include "tools/relay/order.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace horo::tools::relay {
namespace {

LinkSettings after(const std::string& text) {
  LinkSettings settings;
  order_of(text).change(settings);
  return settings;
}

TEST(RelayOrder, ValuesHaveUnits) {
  EXPECT_EQ(after("delay 10ms").delay, std::chrono::milliseconds(10));
  EXPECT_EQ(after("jitter 500us").jitter, std::chrono::microseconds(500));
  EXPECT_DOUBLE_EQ(after("loss 0.1%").loss, 0.001);
  EXPECT_DOUBLE_EQ(after("reorder 0.25").reorder, 0.25);
  EXPECT_DOUBLE_EQ(after("corrupt 1e-4").corrupt, 1e-4);
  EXPECT_DOUBLE_EQ(after("rate 1gbit").bits_per_second, 1e9);
  EXPECT_EQ(after("queue 2MiB").queue_bytes, std::size_t{2} << 20);
  EXPECT_EQ(after("rate 0").bits_per_second, 0) << "nothing needs no unit";
}

TEST(RelayOrder, CutsAndStallsAreHealed) {
  EXPECT_EQ(after("cut").passage, Passage::kCut);
  EXPECT_EQ(after("stall").passage, Passage::kStalled);
  EXPECT_EQ(after("heal").passage, Passage::kOpen);
}

TEST(RelayOrder, AnOrderMayEndWithADirection) {
  EXPECT_TRUE(order_of("cut").a_to_b && order_of("cut").b_to_a);
  EXPECT_TRUE(order_of("cut a->b").a_to_b && !order_of("cut a->b").b_to_a);
  EXPECT_TRUE(!order_of("delay 1s b->a").a_to_b && order_of("delay 1s b->a").b_to_a);
}

std::string refusal_of(const std::string& text) {
  try {
    order_of(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "was taken";
}

TEST(RelayOrder, TheErrorForAnInvalidOrderHasTheExpectedOnes) {
  EXPECT_EQ(refusal_of("explode"),
            "\"explode\": expected one of delay jitter loss reorder corrupt rate queue cut stall heal");
  EXPECT_EQ(refusal_of("delay"), "\"delay\": expected delay 10ms, and a->b or b->a");
  EXPECT_EQ(refusal_of("cut everything"), "\"cut everything\": expected cut, and a->b or b->a");
  EXPECT_EQ(refusal_of("delay 10"), "\"10\": expected a number that is not negative, and one of the units ms s us");
  EXPECT_EQ(refusal_of("loss 101%"), "\"101%\": expected a probability, 0 to 1 or 0% to 100%");
  for (const char* text : {"", "a->b", "delay -1ms", "delay nan", "loss 1e999", "rate 1mbit 2", "delay ms"}) {
    EXPECT_NE(refusal_of(text), "was taken") << text;
  }
}

}  // namespace
}  // namespace horo::tools::relay
