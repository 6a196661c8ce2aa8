#include "horo/base/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <string>

namespace horo {
namespace {

TEST(Thread, TakesNoSignalsAndBearsItsName) {
  sigset_t mine, before, after;
  std::string name(16, '\0');
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  start_thread("horo test", [&] {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mine);
    ::pthread_getname_np(::pthread_self(), name.data(), name.size());
  }).join();
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_STREQ(name.c_str(), "horo test");
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD}) {
    EXPECT_EQ(::sigismember(&mine, signal), 1) << signal;
    EXPECT_EQ(::sigismember(&after, signal), ::sigismember(&before, signal)) << signal;
  }
}

}  // namespace
}  // namespace horo
