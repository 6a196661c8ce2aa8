// A member that was evicted asks for a place, and the guard answers.
#include "elastic/rejoin.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "elastic/guard_link.h"
#include "horo/base/error.h"

namespace horo {
namespace {

using std::chrono::milliseconds;

// The descriptor that has come with a packet.
int descriptor_from(int socket) {
  std::byte one{};
  iovec bytes{&one, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr packet{};
  packet.msg_iov = &bytes;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  EXPECT_EQ(::recvmsg(socket, &packet, 0), 1);
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&packet)), sizeof(fd));
  return fd;
}

class Rejoin : public testing::Test {
 protected:
  Rejoin() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends_.data()), 0); }
  ~Rejoin() override {
    for (const int fd : ends_) ::close(fd);
  }
  // answer: called with the socket that the member has passed.
  std::optional<Admission> ask(const std::function<void(int)>& answer, milliseconds limit = milliseconds(10'000)) {
    std::jthread guard([&] {
      const int passed = descriptor_from(ends_[1]);
      answer(passed);
      ::close(passed);
    });
    return ask_to_rejoin(ends_[0], limit);
  }

  std::array<int, 2> ends_{};
};

TEST_F(Rejoin, TheMemberHasTheSocketOfItsNewNumber) {
  const auto admission = ask([](int socket) {
    const auto bytes = encode_admission(7);
    EXPECT_EQ(::send(socket, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  });
  ASSERT_TRUE(admission);
  EXPECT_EQ(admission->id, 7U);
  const GuardLink link(admission->guard_fd, [] {});
}

TEST_F(Rejoin, AClosedSocketIsARefusal) {
  EXPECT_FALSE(ask([](int) {}));
}

TEST_F(Rejoin, AGuardThatDoesNotAnswerIsARefusal) {
  std::array<std::byte, 1> end{};
  EXPECT_FALSE(ask([&](int socket) { EXPECT_EQ(::recv(socket, end.data(), end.size(), 0), 0); }, milliseconds(20)));
}

TEST_F(Rejoin, AGuardThatHasEndedIsARefusal) {
  ::close(ends_[1]);
  ends_[1] = -1;
  EXPECT_FALSE(ask_to_rejoin(ends_[0], milliseconds(10'000)));
}

TEST_F(Rejoin, OtherAnswersAreRefused) {
  EXPECT_EQ(decode_admission(encode_admission(kMaxMembers - 1)), kMaxMembers - 1);
  EXPECT_THROW(decode_admission(encode_admission(kMaxMembers)), ProtocolError);
  auto bytes = encode_admission(1);
  bytes.push_back(std::byte{0});
  EXPECT_THROW(decode_admission(bytes), ProtocolError);
  bytes.resize(3);
  EXPECT_THROW(decode_admission(bytes), ProtocolError);
  bytes.front() = std::byte{1};
  EXPECT_THROW(decode_admission(bytes), ProtocolError);
}

}  // namespace
}  // namespace horo
