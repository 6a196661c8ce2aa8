// Thousands of connections of strangers at a rendezvous process that may open fewer descriptors than that by default.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "elastic/service/rendezvous_client.h"
#include "tests/effort.h"
#include "tests/elastic/service/served_rendezvous.h"

namespace horo {
namespace {

using namespace std::chrono_literals;

constexpr rlim_t kUsual = 1'024;  // descriptors of a process
constexpr int kConnections = 3'000;
constexpr double kLongest = 20;  // seconds; 0.1 where no other load is
constexpr std::size_t kMostCrowdKib = (test::kSanitized ? 4 : 1) * (150 << 10);

void set_limit(rlim_t most) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min(most, limit.rlim_max);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

class Crowd : public testing::Test {
 protected:
  Crowd() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    before_ = limit.rlim_cur;
    most_ = static_cast<int>(std::min<rlim_t>(limit.rlim_max, kConnections + 500)) - 500;
    set_limit(kUsual);
    served_ = std::make_unique<ServedRendezvous>();
    own_ = enrolled(*served_, 0, 100);
  }
  ~Crowd() override {
    leave();
    set_limit(before_);
  }

  void come() {
    set_limit(static_cast<rlim_t>(most_) + 500);
    while (static_cast<int>(crowd_.size()) < most_) {
      const int fd = served_->connect_raw();
      ASSERT_GE(fd, 0) << crowd_.size() << " connections";
      crowd_.push_back(fd);
    }
  }
  void leave() {
    for (const int fd : crowd_) ::close(fd);
    crowd_.clear();
  }
  // Seconds that a registration of host 0 takes.
  double join() {
    const auto start = std::chrono::steady_clock::now();
    RendezvousClient client(served_->address(), own_);
    JobSpec spec;
    spec.ranks_by_host = {1};
    EXPECT_NE(client.register_host({spec, 0, 100, {{{0, 0, {}}}, 0}}).number, 0U);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  rlim_t before_ = 0;
  int most_ = 0;
  std::unique_ptr<ServedRendezvous> served_;
  Credentials own_;
  std::vector<int> crowd_;
};

TEST_F(Crowd, OfThousandsOfIdleConnectionsHoldsUpNobodyAlsoAfterARestart) {
  const std::size_t before = served_->memory_kib();
  come();
  EXPECT_LT(join(), kLongest);
  EXPECT_LT(served_->memory_kib(), before + kMostCrowdKib);
  leave();
  set_limit(kUsual);
  served_->restart();
  come();
  EXPECT_LT(join(), kLongest);
  EXPECT_LT(served_->memory_kib(), before + kMostCrowdKib);
  EXPECT_TRUE(served_->is_running());
}

}  // namespace
}  // namespace horo
