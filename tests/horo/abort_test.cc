// Session::abort: every rank ends with its reason.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/horo/worlds.h"

namespace horo {
namespace {

using testing::HasSubstr;

// A control link that drops abort notices, so that the other ranks learn of an abort by the data connections alone.
// send() returns after the engine was woken twice.
class SlowLink final : public ControlLink {
 public:
  SlowLink(std::unique_ptr<ControlLink> link, std::atomic<bool>& is_sending)
      : link_(std::move(link)), is_sending_(is_sending) {}

  void send(int to, std::vector<std::byte> bytes) override {
    link_->send(to, std::move(bytes));
    const int before = wakes_;
    is_sending_ = true;
    is_sending_.notify_all();
    for (int now = before; now < before + 2; now = wakes_) wakes_.wait(now);
  }
  void beat(bool wants_answer) override { link_->beat(wants_answer); }
  void suspect(int about, Evidence evidence, const std::string& reason) override {
    link_->suspect(about, evidence, reason);
  }
  Duration way_to(int rank) const override { return link_->way_to(rank); }
  void watch(int fd) override { link_->watch(fd); }
  std::vector<ControlEvent> wait(TimePoint until) override { return link_->wait(until); }
  void wake() noexcept override {
    ++wakes_;
    wakes_.notify_all();
    link_->wake();
  }
  void abort(int, const std::string&) noexcept override {}
  void goodbye(Duration patience) noexcept override { link_->goodbye(patience); }

 private:
  std::unique_ptr<ControlLink> link_;
  std::atomic<bool>& is_sending_;
  std::atomic<int> wakes_ = 0;
};

TEST(Abort, ReachesEveryRankWithItsReason) {
  const auto thrown = run_world(3, [](Session& session) {
    if (session.topology().rank == 1) return session.abort("the data set is gone");
    float x = 0;
    session.run(float_spec("x", 1), &x, &x);
  });
  EXPECT_THAT(thrown[0], HasSubstr("the data set is gone"));
  EXPECT_THAT(thrown[2], HasSubstr("the data set is gone"));
}

TEST(Abort, ItsReasonArrivesThoughTheRankLeavesAtOnce) {
  std::atomic<bool> is_sending = false, others_know = false;
  std::vector<Links> links = connect_in_process(2);
  links[1].control = std::make_unique<SlowLink>(std::move(links[1].control), is_sending);
  const auto thrown = run_world_over(std::move(links), [&](Session& session) {
    float x = 0;
    const auto work = session.submit(float_spec("x", 1), &x, &x);
    if (session.topology().rank == 1) {
      is_sending.wait(false);
      session.abort("the data set is gone");  // the first wake
      session.shutdown();                     // the second
      others_know.wait(false);  // by the transport, because the end of a link without a goodbye is evidence too
    }
    session.wait(std::span(&work, 1), TimePoint::max());
    others_know = true;
    others_know.notify_all();
    work->outcome();
  });
  EXPECT_THAT(thrown, testing::Each(HasSubstr("the data set is gone")));
}

}  // namespace
}  // namespace horo
