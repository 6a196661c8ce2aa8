// Handshakes among strangers: what a peer with the key keeps, and what a dialer takes for a connection.

#include "ring/bootstrap/pending_accepts.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include "horo/base/error.h"
#include "ring/bootstrap/full_mesh.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using Bytes = std::vector<std::byte>;

Identity identity(int rank) {
  Identity self;
  self.rank = rank;
  self.size = 2;
  self.key.fill(std::byte{7});
  return self;
}

void send(const Fd& fd, const Bytes& bytes) {
  iovec part = as_iovec(bytes);
  ASSERT_EQ(send_some(fd.get(), {&part, 1}).bytes, bytes.size());
}

class StrangersTest : public testing::Test {
 protected:
  // Connects from an address of the loopback network.
  Fd connect_from(const char* address) const {
    const Address from = resolve(std::string(address) + ":0", "test").front();
    const Address to = local_address(listener_.get());
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from.storage), from.length), 0);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.length), 0);
    return fd;
  }

  void connect_strangers(int count, const char* address = "127.0.0.1") {
    for (; count > 0; --count) strangers_.push_back(connect_from(address));
  }

  void poll() {
    PollSet polls;
    accepts_.add_to(polls);
    polls.poll_once(Duration::zero());
  }

  // The rest of an honest handshake.
  void finish(const Fd& fd, Handshake& dialer) {
    for (const TimePoint until = soon(); !dialer.is_done() && Clock::now() < until;) {
      poll();
      Bytes bytes(dialer.wants());
      iovec part = as_iovec(bytes);
      const Moved moved = receive_some(fd.get(), {&part, 1});
      ASSERT_FALSE(moved.ended);
      if (moved.bytes == 0) continue;
      ASSERT_EQ(moved.bytes, bytes.size());
      dialer.feed(bytes);
      send(fd, dialer.take_output());
    }
    EXPECT_EQ(admitted_, 1);
  }

  static constexpr int kMany = 600;  // more than wait at one time

  const Identity self_ = identity(0);
  Fd listener_ = listen_at(resolve("127.0.0.1:0", "test").front());
  int admitted_ = 0;
  PendingAccepts accepts_{self_, std::chrono::minutes(1), [this](PendingConnection& pending) {
                            pending.admit();
                            pending.take_connection();
                            ++admitted_;
                          }};
  std::vector<Fd> strangers_;
};

TEST_F(StrangersTest, APeerWhoseHelloProvesTheKeyKeepsItsPlace) {
  const Fd honest = connect_from("127.0.0.1");
  auto dialer = Handshake::dialing(identity(1), 0, Purpose::kData);
  send(honest, dialer.take_output());
  accepts_.accept_all(listener_.get());
  connect_strangers(kMany);
  accepts_.accept_all(listener_.get());
  accepts_.accept_all(listener_.get());
  EXPECT_GT(accepts_.dropped(), 0u);
  finish(honest, dialer);
}

TEST_F(StrangersTest, AHelloThatHasArrivedIsReadBeforeItsConnectionIsDropped) {
  const Fd honest = connect_from("127.0.0.1");
  accepts_.accept_all(listener_.get());
  auto dialer = Handshake::dialing(identity(1), 0, Purpose::kData);
  send(honest, dialer.take_output());
  connect_strangers(kMany);
  accepts_.accept_all(listener_.get());
  accepts_.accept_all(listener_.get());
  finish(honest, dialer);
}

TEST_F(StrangersTest, TheAddressWithTheMostStrangersGivesUpAPlace) {
  const Fd honest = connect_from("127.0.0.2");
  accepts_.accept_all(listener_.get());
  connect_strangers(kMany);
  accepts_.accept_all(listener_.get());
  accepts_.accept_all(listener_.get());
  auto dialer = Handshake::dialing(identity(1), 0, Purpose::kData);
  send(honest, dialer.take_output());
  finish(honest, dialer);
}

TEST_F(StrangersTest, CopiesOfAFirstHelloAreStrangers) {
  const Fd honest = connect_from("127.0.0.1");
  auto dialer = Handshake::dialing(identity(1), 0, Purpose::kData);
  const Bytes hello = dialer.take_output();
  send(honest, hello);
  accepts_.accept_all(listener_.get());
  connect_strangers(kMany);
  for (const Fd& copy : strangers_) send(copy, hello);
  accepts_.accept_all(listener_.get());
  accepts_.accept_all(listener_.get());
  EXPECT_GT(accepts_.dropped(), 0u);
  finish(honest, dialer);
}

TEST_F(StrangersTest, ACopyOfAFirstHelloThatIsReadFirstKeepsNoPeerOut) {
  const Fd copy = connect_from("127.0.0.1"), honest = connect_from("127.0.0.1");
  auto dialer = Handshake::dialing(identity(1), 0, Purpose::kData);
  const Bytes hello = dialer.take_output();
  send(copy, hello);
  accepts_.accept_all(listener_.get());
  send(honest, hello);
  poll();
  EXPECT_EQ(accepts_.dropped(), 0u);
  finish(honest, dialer);
}

// The acceptor drops the first connection when the dialer has sent its last hello.
TEST(FullMesh, AConnectionIsDialledAgainUntilItIsAdmitted) {
  const Fd listener = listen_at(resolve("127.0.0.1:0", "test").front());
  FullMesh mesh;
  mesh.self = identity(1);
  mesh.targets = {{0, Purpose::kData, {local_address(listener.get())}}};
  mesh.hello_timeout = std::chrono::seconds(60);
  mesh.deadline = soon();
  int dropped = 0;
  const auto errors = run_threads({[&] { EXPECT_EQ(connect_mesh(mesh).size(), 1u); },
                                   [&] {
                                     const Identity self = identity(0);
                                     bool is_admitted = false;
                                     PendingAccepts accepts(self, mesh.hello_timeout, [&](PendingConnection& pending) {
                                       if (dropped++ == 0) throw ProtocolError("dropped");
                                       pending.admit();
                                       is_admitted = true;
                                     });
                                     while (!is_admitted && Clock::now() < mesh.deadline) {
                                       PollSet polls;
                                       accepts.add_to(polls);
                                       polls.add(listener.get(), POLLIN, [&] { accepts.accept_all(listener.get()); });
                                       polls.poll_once(std::chrono::milliseconds(100));
                                     }
                                   }});
  EXPECT_EQ(dropped, 2);
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
}

}  // namespace
}  // namespace horo::test
