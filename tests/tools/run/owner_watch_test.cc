// The guard sees the death of a member by its owner word, before the kernel has freed its memory. Nothing else looks
// like a death.
#include "tools/horo/run/owner_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "horo/base/error.h"
#include "horo/base/time.h"
#include "tools/horo/run/elastic_job.h"
#include "tools/horo/run/ending.h"

namespace horo::tools {
namespace {

using std::chrono::milliseconds;

// Keeps what has happened.
class Listener final : public Decision {
 public:
  explicit Listener(Later asked) : later(std::move(asked)) { view_.members.resize(1); }
  DecisionActions take(const HostEvent& event) override {
    events.push_back(event);
    return {};
  }
  const JobView& job() const override { return view_; }
  bool may_end(bool) override { return true; }

  const Later later;
  std::vector<HostEvent> events;

 private:
  JobView view_;
};

// The guard of one member, guarded_member, which has said that it runs.
class OneMember {
 public:
  explicit OneMember(const std::string& mode, std::size_t bytes = 0)
      : loop_(::ev_loop_new(0), ::ev_loop_destroy),
        job_(
            loop_.get(), [this](const GuardActions& actions) { carry_out(actions); },
            [this](MemberId) { return status_of_ending(child_.pid); },
            [this](Decision::Later later) {
              auto listener = std::make_unique<Listener>(std::move(later));
              listener_ = listener.get();
              return listener;
            }) {
    Program program;
    program.arguments = {HORO_GUARDED_MEMBER, mode, std::to_string(bytes)};
    const Descriptor end = job_.connect(0, program);
    child_ = start(program);
    EXPECT_TRUE(run_until(milliseconds(10'000), [this] { return !listener_->events.empty(); }));
  }
  ~OneMember() {
    ::kill(child_.pid, SIGKILL);
    ::waitpid(child_.pid, nullptr, 0);
  }
  OneMember(const OneMember&) = delete;
  OneMember& operator=(const OneMember&) = delete;

  pid_t pid() const { return child_.pid; }
  Listener& listener() { return *listener_; }
  const MemberEnded* end() const {
    return listener_->events.size() < 2 ? nullptr : std::get_if<MemberEnded>(&listener_->events.back());
  }
  bool is_reaped_next() const {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(child_.pid), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid != 0;
  }

  // False: it did not come true.
  template <class Reached>
  bool run_until(milliseconds limit, const Reached& is_reached) {
    const TimePoint until = Clock::now() + limit;
    Timer tick(loop_.get(), [this] { ::ev_break(loop_.get(), EVBREAK_ONE); });
    while (!is_reached()) {
      if (Clock::now() >= until) return false;
      tick.set(0.05);
      ::ev_run(loop_.get(), EVRUN_ONCE);
    }
    return true;
  }

 private:
  void carry_out(const GuardActions& actions) const {
    for (const GuardAction& action : actions) {
      EXPECT_TRUE(std::holds_alternative<KillMember>(action));
      ::kill(child_.pid, SIGKILL);
    }
  }

  std::unique_ptr<struct ev_loop, void (*)(struct ev_loop*)> loop_;
  Listener* listener_ = nullptr;
  Child child_;
  ElasticJob job_;
};

TEST(OwnerWatch, ADeathIsSeenBeforeTheMemoryIsFreed) {
  OneMember member("kill", std::size_t{1} << 30);
  const TimePoint killed = Clock::now();
  ::kill(member.pid(), SIGKILL);
  ASSERT_TRUE(member.run_until(milliseconds(5'000), [&] { return member.end() != nullptr; }));
  EXPECT_LT(Clock::now() - killed, milliseconds(100));
  EXPECT_FALSE(member.is_reaped_next()) << "the process had ended before";
  EXPECT_FALSE(member.end()->succeeded);
  EXPECT_EQ(member.end()->how, "signal 9 (SIGKILL)");
}

void expect_no_end(OneMember& member) {
  EXPECT_FALSE(member.run_until(milliseconds(100), [&] { return member.end() != nullptr; }));
}

TEST(OwnerWatch, AMemberThatLeavesHasNotDied) {
  OneMember member("leave");
  expect_no_end(member);
}

TEST(OwnerWatch, AProcessThatExitsInGoodOrderHasNotDied) {
  OneMember member("exit");
  expect_no_end(member);
}

TEST(OwnerWatch, AProcessThatExecutesAnotherProgramHasNotDied) {
  OneMember member("exec");
  expect_no_end(member);
  ::kill(member.pid(), SIGTERM);
  EXPECT_TRUE(member.run_until(milliseconds(900), [&] { return member.end() != nullptr; })) << "it is still looked at";
}

TEST(OwnerWatch, AThreadThatEndsAloneIsNoDeath) {
  OneMember member("thread");
  member.listener().later({SendToMember{0, std::make_shared<const GuardMessage>(Ask{})}});
  expect_no_end(member);
}

TEST(OwnerWatch, EndsWhileTheWordIsHeld) {
  OneMember member("kill");
}

TEST(OwnerPage, OthersAreRefused) {
  const Descriptor none(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_THROW(OwnerPage::map(none.get()), ProtocolError);
  const Descriptor changeable(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(changeable.get(), 4'096), 0);
  EXPECT_THROW(OwnerPage::map(changeable.get()), ProtocolError);
  const Descriptor empty(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::fcntl(empty.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_THROW(OwnerPage::map(empty.get()), ProtocolError);
}

}  // namespace
}  // namespace horo::tools
