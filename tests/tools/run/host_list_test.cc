// Lists of hosts, and what travels to the hosts in them.
#include "tools/horo/run/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <span>
#include <stdexcept>
#include <string>

#include "horo/base/error.h"
#include "tools/horo/run/host_start.h"

namespace horo::tools {
namespace {

std::string text_of(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts) {
    text += host.name + "=" + std::to_string(host.slots) + (host.is_here ? " here, " : ", ");
  }
  return text;
}

TEST(HostList, ThisHostIsFirstAndNamesOfOneHostAreOne) {
  EXPECT_EQ(text_of(parse_hosts(" 198.51.100.2:2, user@198.51.100.1:3,127.0.0.1:1 ,localhost,198.51.100.2", "--hosts")),
            "127.0.0.1=2 here, 198.51.100.2=3, user@198.51.100.1=3, ");
  EXPECT_EQ(text_of(parse_hosts("[2001:db8::1]:2", "--hosts")), "2001:db8::1=2, ");
}

TEST(HostList, RanksFillTheHostsInTheirOrder) {
  const auto hosts = parse_hosts("198.51.100.1:2,198.51.100.2:4,198.51.100.3:1", "--hosts");
  EXPECT_EQ(text_of(place_ranks(hosts, 3, "--hosts")), "198.51.100.1=2, 198.51.100.2=1, ");
  EXPECT_EQ(text_of(place_ranks(hosts, 0, "--hosts")), "198.51.100.1=2, 198.51.100.2=4, 198.51.100.3=1, ");
  EXPECT_THROW(place_ranks(hosts, 8, "--hosts"), std::invalid_argument);
}

TEST(HostList, WhatAShellOrSshCouldTakeForSomethingElseIsRefused) {
  for (const char* name : {"",      "-a", ".a", "a b",  "a;b", "$(a)",   "a'b", "a\nb", "a/b",    "-a@b",  "a@-b",
                           "a@b@c", "@b", "a@", "[-a]", "[a",  "[::1]x", "a:0", "a:-1", "a:1025", "a:1:2", "a:"}) {
    EXPECT_THROW(parse_hosts(name, "--hosts"), std::invalid_argument) << name;
  }
}

// The start of a host as it is read from a pipe, without its last `missing` bytes.
HostStart sent(const HostStart& start, std::size_t missing) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::runtime_error("pipe");
  const std::vector<std::byte> bytes = encode(start);
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  EXPECT_EQ(::write(to.get(), bytes.data(), bytes.size() - missing), static_cast<ssize_t>(bytes.size() - missing));
  to.close();
  return read_host_start(from.get());
}

TEST(HostStart, ArrivesAsItWasSentOrNotAtAll) {
  HostStart start;
  start.key = make_job_key();
  start.folder = "/a folder";
  start.variables = {"A=1 2", "B="};
  start.horo_run = {"run", "--", "it's", ""};
  start.silence_ms = 1;
  EXPECT_EQ(sent(start, 0), start);
  for (std::size_t missing = 1; missing < encode(start).size(); ++missing) {
    EXPECT_THROW(sent(start, missing), ProtocolError) << missing;
  }
}

}  // namespace
}  // namespace horo::tools
