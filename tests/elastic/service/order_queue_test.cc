// The orders that a host does not take are bounded by number and by bytes.
#include "elastic/service/order_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/service/core_driver.h"

namespace horo {
namespace {

using testing::SizeIs;

constexpr std::size_t kEffects = 8 << 20;

TEST(OrderQueue, CountsTheBytesOfItsOrders) {
  OrderSizes sizes;
  OrderQueue queue;
  const auto view = std::make_shared<const GuardMessage>(View{1, {0}, {}, {}, std::string(1'000, 'x')});
  const std::vector<HostOrder> orders{SendToMembers{{0}, view}, StoryTold{1, std::string(500, 'x')},
                                      SendToMembers{{0}, std::make_shared<const GuardMessage>(Ask{})},
                                      EndJob{std::string(200, 'x')}};
  for (const HostOrder& order : orders) {
    const std::size_t bytes = sizes.of(order), encoded = encode(AgentSays(order)).size();
    EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(encoded), 20);
    queue.push(order, bytes);
  }
  EXPECT_GT(queue.bytes(), 1'700U);
  while (!queue.empty()) queue.pop();
  EXPECT_EQ(queue.bytes(), 0U);
}

// Each epoch has a View with as many effects as there may be.
TEST(OrderQueue, AHostThatDoesNotTakeLargeOrdersHasToRegisterAgain) {
  CoreDriver job({2, 1});
  job.join(0);
  job.join(1);
  std::uint32_t epoch = 0;
  const auto next_epoch = [&] {
    Frozen ahead = CoreDriver::frozen(0, epoch);
    ahead.applied = 1;
    ahead.effects[1] = std::vector<std::byte>(kEffects, std::byte{7});
    job.report(0, MemberSent{0, ahead});
    job.froze(1, epoch);
    job.report(1, MemberSent{2, CoreDriver::frozen(2, epoch)});
    EXPECT_THAT(job.sent<View>(0), SizeIs(2));
    ++epoch;
  };
  for (int views = 0; views < 8; ++views) next_epoch();
  job.core->beat(job.numbers[1], job.now);
  std::size_t views = 8;
  try {
    for (; views < 20; ++views) next_epoch();
  } catch (const NotRegistered&) {
  }
  EXPECT_EQ(views, 13U);  // 104 MiB
  HostHello hello = job.hello(1);
  hello.past.members[0].viewed = epoch - 1;
  job.join(hello);
  EXPECT_THAT(job.sent<View>(1), SizeIs(1));
  job.core->beat(job.numbers[0], job.now);
}

}  // namespace
}  // namespace horo
