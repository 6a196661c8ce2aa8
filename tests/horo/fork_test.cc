// Calls in children of fork() have no effect. A child reports by its exit status alone, because other threads may have
// held locks at the fork. An alarm ends a child that hangs.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "horo/base/error.h"
#include "horo/base/forked.h"
#include "horo/horo.h"
#include "horo/tensors/work.h"
#include "ring/os/socket.h"
#include "tests/effort.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

constexpr unsigned kChildSeconds = 20;

// The exit status of a forked child that runs `body`; 256 and more if a signal ended it.
int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(kChildSeconds);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) != -1;
}

TEST(Fork, AChildInheritsNoDescriptorOfHoro) {
  Wakeup ours;
  const int not_ours = ::dup(STDERR_FILENO);
  EXPECT_EQ(in_child([&] { return (is_open(ours.fd()) ? 1 : 0) + (is_open(not_ours) ? 0 : 2); }), 0);
  EXPECT_TRUE(is_open(ours.fd()));
  ::close(not_ours);
}

TEST(Fork, AChildDoesNotCloseADescriptorTwice) {
  auto ours = std::make_unique<Wakeup>();
  const int number = ours->fd();
  EXPECT_EQ(in_child([&] {
              const int taken = ::fcntl(STDERR_FILENO, F_DUPFD, number);  // the first free number is that of `ours`
              ours.reset();
              return taken == number && is_open(taken) ? 0 : 1;
            }),
            0);
}

constexpr Key kWorks = 8;  // a yield takes milliseconds on a busy machine

// Ends Works one after the other, each while a thread waits for it. Each bell is used often enough to block if it still
// had waiting threads of the parent.
int end_works_of_a_child() {
  for (int round = 0; round < 3; ++round) {
    for (Key key = 0; key < kWorks; ++key) {
      Work own(key);
      std::atomic<bool> runs = false;
      std::jthread waiter([&] {
        runs = true;
        own.wait_until(TimePoint::max());
      });
      while (!runs) std::this_thread::yield();
      for (int turn = 0; turn < 20; ++turn) std::this_thread::yield();  // usually it waits by now
      own.finish({});
    }
  }
  return 0;
}

// Works share condition variables, and a child lacks the threads that wait for them at the fork.
TEST(Fork, WorksOfAChildEndThoughThreadsOfTheParentWaited) {
  if (test::kSanitized) GTEST_SKIP() << "ThreadSanitizer has no threads in a forked child";
  std::vector<std::unique_ptr<Work>> works;
  std::vector<std::jthread> waiters;
  for (Key key = 0; key < kWorks; ++key) {
    works.push_back(std::make_unique<Work>(key));
    waiters.emplace_back([&work = *works.back()] { work.wait_until(TimePoint::max()); });
  }
  for (int round = 0; round < 5; ++round) EXPECT_EQ(in_child(end_works_of_a_child), 0);
  for (const auto& work : works) work->finish({});
}

TEST(Fork, ACallInAChildThrowsAndHasNoEffect) {
  Session session{Config{}};
  EXPECT_EQ(in_child([&] {
              try {
                session.declare(TensorSpec{});
              } catch (const ShutDown& error) {
                const std::string text = error.what();
                return text.find("forked from rank 0 (pid ") != std::string::npos ? 0 : 2;
              }
              return 1;
            }),
            0);
  float x = 2;
  TensorSpec spec;
  spec.name = "x";
  spec.shape = {1};
  session.run(spec, &x, &x);
  EXPECT_EQ(x, 2.0f);
}

TEST(Fork, TheDestructorInAChildDoesNotWait) {
  auto session = std::make_unique<Session>(Config{});
  EXPECT_EQ(in_child([&] {
              session.reset();
              return 0;
            }),
            0);
}

// The connections of the parent close when it ends, although the child still runs.
TEST(Fork, AChildDoesNotKeepConnectionsOpen) {
  const std::string addr = test::free_address();
  int stop[2];
  ASSERT_EQ(::pipe2(stop, O_CLOEXEC), 0);
  pid_t child = 0;
  std::vector<std::function<void()>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back([&, rank] {
      const Config config = test::config_of(rank, 2, addr);
      Links links = connect_tcp(config, 0, make_tcp_exchange(config, 0));
      if (rank == 1) {
        child = ::fork();
        if (child == 0) {
          char byte = 0;
          ::alarm(kChildSeconds);
          ::_exit(static_cast<int>(::read(stop[0], &byte, 1)));
        }
        links.control.reset();
        return;
      }
      const auto events = links.control->wait(test::soon());
      ASSERT_EQ(events.size(), 1u);
      EXPECT_EQ(events[0].kind, ControlEvent::Kind::kLost);
    });
  }
  for (const auto& error : test::run_threads(ranks)) EXPECT_EQ(test::message_of(error), "");
  EXPECT_EQ(::write(stop[1], "x", 1), 1);
  ::waitpid(child, nullptr, 0);
  ::close(stop[0]);
  ::close(stop[1]);
}

}  // namespace
}  // namespace horo
