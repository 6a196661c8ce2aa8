#include "ring/os/any_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "ring/os/socket.h"

namespace horo {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(AnyAddress, IsFoundInEveryNotation) {
  for (const char* host : {"0.0.0.0", "0", "0x0", "::", "0:0::0", "::ffff:0.0.0.0"}) EXPECT_TRUE(is_any_address(host));
  for (const char* host : {"127.0.0.1", "10.0.0.0", "0.0.0.1", "::1", "::ffff:10.0.0.1", "localhost", ""})
    EXPECT_FALSE(is_any_address(host));
}

TEST(AnyAddress, IsNoAddressThatOthersReach) {
  for (const char* addr : {"0.0.0.0:29400", "[::]:29400", "0:29400"}) {
    EXPECT_THAT([addr] { resolve(addr, "HORO_ADDR"); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(std::string("HORO_ADDR=") + addr + ": ")));
  }
  EXPECT_FALSE(resolve("127.0.0.1:29400", "HORO_ADDR").empty());
}

}  // namespace
}  // namespace horo
