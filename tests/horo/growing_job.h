// A growing job whose ranks are threads of the test, which is the guard.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "elastic/messages.h"
#include "elastic/packets.h"
#include "tests/horo/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {

// The guard's ends of the sockets to its processes.
class ScriptedGuard {
 public:
  // Returns the process's end.
  int add(MemberId id) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()) != 0) std::abort();
    sockets_[id] = ends[0];
    return ends[1];
  }
  ~ScriptedGuard() {
    for (const auto& [id, fd] : sockets_) ::close(fd);
  }
  // The next message of this kind; others are left out.
  template <class Message>
  Message receive(MemberId id) {
    PacketJoiner joiner;
    std::vector<std::byte> bytes(kMaxPacket + 1);
    while (true) {
      const ssize_t got = ::recv(sockets_.at(id), bytes.data(), bytes.size(), 0);
      if (got <= 0) throw std::runtime_error("process " + std::to_string(id) + " has ended");
      if (got == 1) continue;  // the owner page
      const auto whole = joiner.take(std::span(bytes).first(static_cast<std::size_t>(got)));
      if (!whole) continue;
      const MemberMessage message = decode_member_message(*whole);
      if (const auto* found = std::get_if<Message>(&message)) return *found;
    }
  }
  void send(MemberId id, const GuardMessage& message) {
    for (const auto& packet : packets_of(encode(message))) ::send(sockets_.at(id), packet.data(), packet.size(), 0);
  }
  // Begins an epoch of these members: those that are frozen, and those that join.
  View view_of(std::uint32_t epoch, const std::map<MemberId, Frozen>& frozen, const std::map<MemberId, Ready>& ready) {
    View view;
    view.epoch = epoch;
    view.secret.fill(static_cast<std::byte>(epoch));
    view.reason = "ranks join";
    view.at_border = true;
    for (const auto& [id, message] : frozen) {
      view.members.push_back(id);
      view.progress[id] = message.progress;
      view.cards[id] = message.card;
      view.at_border = view.at_border && message.at_border;
      if (!ready.empty()) view.sets = message.sets;
    }
    for (const auto& [id, message] : ready) {
      view.members.push_back(id);
      view.cards[id] = message.card;
      view.joined.push_back(id);
    }
    return view;
  }
  void begin(const View& view) {
    for (const MemberId id : view.members) send(id, view);
    for (const MemberId id : view.members) EXPECT_EQ(receive<Installed>(id).epoch, view.epoch);
  }

 private:
  std::map<MemberId, int> sockets_;
};

using Body = std::function<void(Session&)>;

class GrowingJob : public testing::Test {
 protected:
  // Runs the body on `size` ranks, and `guard` beside them. A process joins with join().
  void run(int size, const Body& body, const std::function<void()>& guard) {
    std::vector<std::function<void()>> threads;
    const std::string addr = test::free_address();
    for (int rank = 0; rank < size; ++rank) {
      Config config = test::config_of(rank, size, addr);
      config.min_np = 1;
      config.transport = transport_;
      config.guard_fd = guard_.add(static_cast<MemberId>(rank));
      threads.push_back([config, &body] {
        Session session(config);
        body(session);
      });
    }
    threads.push_back([&, size] {
      for (int rank = 0; rank < size; ++rank) guard_.receive<Installed>(static_cast<MemberId>(rank));
      guard();
    });
    for (const auto& error : test::run_threads(threads)) EXPECT_EQ(test::message_of(error), "");
    for (std::future<void>& one : joiners_) EXPECT_NO_THROW(one.get());
  }
  // Starts a process that joins, and waits until it is ready.
  Ready join(MemberId id, const Body& body) {
    Config config = test::config_of(static_cast<int>(id), static_cast<int>(id) + 1, "");
    config.min_np = 1;
    config.joins = true;
    config.transport = transport_;
    config.guard_fd = guard_.add(id);
    joiners_.push_back(std::async(std::launch::async, [config, body] {
      Session session(config, JoinTerms{"model=a\n"});
      body(session);
    }));
    return guard_.receive<Ready>(id);
  }
  std::map<MemberId, Frozen> frozen_of(int size) {
    std::map<MemberId, Frozen> frozen;
    for (int rank = 0; rank < size; ++rank) {
      const auto id = static_cast<MemberId>(rank);
      frozen[id] = guard_.receive<Frozen>(id);
    }
    return frozen;
  }

  ScriptedGuard guard_;
  std::string transport_ = "tcp";
  std::vector<std::future<void>> joiners_;
};

inline TensorSpec named(const std::string& name, CollectiveKind kind = CollectiveKind::kAllReduce) {
  TensorSpec spec;
  spec.kind = kind;
  spec.name = name;
  spec.once = name.empty();
  spec.op = ReduceOp::kSum;
  spec.shape = {1};
  return spec;
}

inline float sum(Session& session, const std::string& name, float value) {
  session.run(named(name), &value, &value);
  return value;
}

inline std::int64_t grow(Session& session) {
  return outcome_of(session, session.grow()).counts.at(0);
}

}  // namespace horo
