// Epochs of an elastic job that end quickly, one after the other. A call that one rank reports as lost fails on all
// ranks, once on each: whatever each rank had installed, submitted and applied when an epoch ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/coordinator.h"
#include "tests/effort.h"

namespace horo {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kCalls = 4;  // of each rank, one after the other; all have the same name
constexpr Key kKey = 0;

// When a rank makes its first call.
enum class Moment { kBefore, kFirstEpoch, kEndOfFirst, kSecondEpoch, kLast };

struct RankPlan {
  Moment first_call = Moment::kBefore;
  bool has_seen = false;  // the caller knows the ranks of the epoch in which it makes its first call
  bool installs = true;   // the first epoch
  int applies = 0;        // of the first epoch: the messages of so many exchanges
};
struct Schedule {
  std::array<RankPlan, kRanks> ranks;
  bool is_renumbered_again = false;  // what was called in the first epoch is lost in the second
};

TensorSpec broadcast() {
  TensorSpec spec;
  spec.name = "x";
  spec.kind = CollectiveKind::kBroadcast;
  spec.shape = {1};
  spec.root = 1;
  return spec;
}

CoordinatorConfig config_of(int rank) {
  CoordinatorConfig config;
  config.rank = rank;
  config.size = kRanks;
  config.elastic = true;
  return config;
}

// Three ranks that live through the epochs 0 to 2. In epoch 0 no message is exchanged.
class Job {
 public:
  explicit Job(const Schedule& schedule) : schedule_(schedule) {
    for (int rank = 0; rank < kRanks; ++rank) ranks_[rank].coordinator = std::make_unique<Coordinator>(config_of(rank));
    make_first_calls(Moment::kBefore, 0);
  }

  void run() {
    begin_epoch(1);
    make_first_calls(Moment::kFirstEpoch, 1);
    for (int times = 1; times <= 2; ++times) {
      exchange([&](int rank) { return schedule_.ranks[rank].applies >= times; });
    }
    make_first_calls(Moment::kEndOfFirst, 1);
    catch_up();
    begin_epoch(2);
    make_first_calls(Moment::kSecondEpoch, 2);
    exchange_until_quiet();
    make_first_calls(Moment::kLast, 2);
    exchange_until_quiet();
  }

  // How the calls of a rank have ended: l for lost, r for run.
  const std::string& ends(int rank) const { return ranks_[rank].ends; }
  bool is_idle(int rank) const { return !ranks_[rank].call; }

 private:
  struct Call {
    int epoch = 0;  // whose ranks it names
    bool lost = false;
    bool ran = false;  // and is not committed
  };
  struct Rank {
    std::unique_ptr<Coordinator> coordinator;
    bool is_in_epoch = true;
    std::optional<Call> call;
    std::string ends;
    std::vector<Event> events;
  };

  bool is_lost(const Call& call) const {
    const bool lost_in_second = call.epoch == 0 || schedule_.is_renumbered_again;
    return call.epoch < epoch_ && (epoch_ == 1 || lost_in_second);
  }

  void make_first_calls(Moment moment, int seen) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const RankPlan& plan = schedule_.ranks[rank];
      if (plan.first_call == moment) make_call(ranks_[rank], plan.has_seen ? seen : 0);
    }
  }

  void make_call(Rank& rank, int seen) {
    rank.call = Call{seen};
    rank.call->lost = is_lost(*rank.call);
    if (rank.is_in_epoch) rank.events.emplace_back(Submitted{kKey, false, rank.call->lost});
  }

  void end_call(Rank& rank, char how) {
    rank.call.reset();
    rank.ends += how;
    if (rank.ends.size() < kCalls) make_call(rank, epoch_);
  }

  void begin_epoch(int epoch) {
    epoch_ = epoch;
    for (int number = 0; number < kRanks; ++number) {
      Rank& rank = ranks_[number];
      rank.events.clear();
      down_[number].clear();
      if (rank.call) rank.call->ran = false;
      rank.is_in_epoch = epoch == 2 || schedule_.ranks[number].installs;
      if (!rank.is_in_epoch) continue;
      std::vector<int> rank_of;
      for (int one = 0; one < kRanks; ++one) rank_of.push_back(one);
      rank.coordinator = std::make_unique<Coordinator>(config_of(number), *rank.coordinator, rank_of);
      rank.coordinator->declare(kKey, broadcast());
      if (!rank.call) continue;
      rank.call->lost = rank.call->lost || is_lost(*rank.call);
      rank.events.emplace_back(Submitted{kKey, false, rank.call->lost});
    }
  }

  // One turn of each rank; the leader's is the last. Messages arrive at ranks that apply them.
  template <class Applies>
  void exchange(const Applies& applies) {
    for (const int rank : {1, 2, 0}) turn(rank);
    for (const int rank : {1, 2}) {
      if (!ranks_[rank].is_in_epoch || !applies(rank)) continue;
      Actions actions;
      for (const std::vector<std::byte>& bytes : std::exchange(down_[rank], {})) {
        ranks_[rank].coordinator->on(Received{0, bytes}, TimePoint(), actions);
      }
      perform(rank, actions);
    }
  }
  void exchange_until_quiet() {
    for (int i = 0; i < 20; ++i) exchange([](int) { return true; });
  }

  void turn(int number) {
    Rank& rank = ranks_[number];
    if (!rank.is_in_epoch) return;
    Actions actions;
    for (const Event& event : std::exchange(rank.events, {})) rank.coordinator->on(event, TimePoint(), actions);
    rank.coordinator->flush(TimePoint(), actions);
    perform(number, actions);
  }

  void perform(int number, const Actions& actions) {
    for (const Action& action : actions) {
      if (const auto* send = std::get_if<Send>(&action)) {
        if (send->to > 0) down_[send->to].push_back(send->bytes);
        if (send->to == 0 && ranks_[0].is_in_epoch) ranks_[0].events.emplace_back(Received{number, send->bytes});
      }
      if (const auto* fail = std::get_if<Fail>(&action)) {
        ASSERT_TRUE(fail->lost && ranks_[number].call) << fail->text;
        end_call(ranks_[number], 'l');
      }
      if (std::holds_alternative<Release>(action)) ranks_[number].call->ran = true;
    }
    commit();
  }

  // What has run on all ranks has ended on all of them.
  void commit() {
    for (const Rank& rank : ranks_) {
      if (!rank.call || !rank.call->ran) return;
    }
    for (Rank& rank : ranks_) end_call(rank, 'r');
  }

  // As the engine and the guard do at the end of an epoch.
  void catch_up() {
    std::map<std::uint64_t, std::vector<std::byte>> all;
    for (const Rank& rank : ranks_) {
      if (rank.is_in_epoch) all.merge(rank.coordinator->effects().effects);
    }
    for (int number = 0; number < kRanks; ++number) {
      if (!ranks_[number].is_in_epoch) continue;
      Actions actions;
      ranks_[number].coordinator->catch_up(all, actions);
      perform(number, actions);
    }
  }

  const Schedule schedule_;
  int epoch_ = 0;
  std::array<Rank, kRanks> ranks_;
  std::array<std::vector<std::vector<std::byte>>, kRanks> down_;  // to each rank, not delivered
};

std::string text_of(const Schedule& schedule) {
  std::string text = schedule.is_renumbered_again ? "renumbered again" : "";
  for (const RankPlan& plan : schedule.ranks) {
    text += "; first call " + std::to_string(static_cast<int>(plan.first_call)) + (plan.has_seen ? " seen" : "") +
            (plan.installs ? "" : " not installed") + " applies " + std::to_string(plan.applies);
  }
  return text;
}

void check(const Schedule& schedule) {
  Job job(schedule);
  job.run();
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(job.is_idle(rank)) << "rank " << rank << " waits in call " << job.ends(rank).size() + 1
                                   << text_of(schedule);
    ASSERT_EQ(job.ends(rank), job.ends(0)) << "rank " << rank << text_of(schedule);
  }
  ASSERT_EQ(job.ends(0).back(), 'r');
}

// The leader applies its messages at once.
std::vector<RankPlan> plans_of(int rank) {
  std::vector<RankPlan> plans;
  for (int moment = 0; moment < 5; ++moment) {
    for (const bool has_seen : {false, true}) {
      if (moment == 0 && has_seen) continue;
      plans.push_back({static_cast<Moment>(moment), has_seen, false, 0});
      for (int applies = 0; applies < (rank == 0 ? 1 : 3); ++applies) {
        plans.push_back({static_cast<Moment>(moment), has_seen, true, applies});
      }
    }
  }
  return plans;
}

TEST(Epochs, ALostCallFailsOnceOnEachRank) {
  std::size_t number = 0;
  for (const RankPlan& first : plans_of(0)) {
    for (const RankPlan& second : plans_of(1)) {
      for (const RankPlan& third : plans_of(2)) {
        for (const bool is_renumbered_again : {false, true}) {
          if (test::kSanitized && ++number % 5 != 0) continue;
          check({{first, second, third}, is_renumbered_again});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Its name has the numbers of two ranks of the last epoch, which may now be those of others.
TEST(Epochs, AMessageThatIsLostFailsOnItsRankAlone) {
  TensorSpec message = broadcast();
  message.name = "x (0 to 1)";
  message.kind = CollectiveKind::kSendRecv;
  message.root = 0;
  message.peer = 1;
  std::array<Actions, kRanks> actions;
  std::vector<Coordinator> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back(config_of(rank));
    ranks.back().declare(kKey, message);
  }
  const auto exchange = [&] {
    for (const int rank : {1, 2, 0}) ranks[rank].flush(TimePoint(), actions[rank]);
    for (int from = 0; from < kRanks; ++from) {
      for (const Action& action : Actions(actions[from])) {
        const auto* send = std::get_if<Send>(&action);
        if (send != nullptr) ranks[send->to].on(Received{from, send->bytes}, TimePoint(), actions[send->to]);
      }
      std::erase_if(actions[from], [](const Action& action) { return std::holds_alternative<Send>(action); });
    }
  };
  ranks[2].on(Submitted{kKey, false, true}, TimePoint(), actions[2]);
  ASSERT_EQ(actions[2].size(), 1U);
  EXPECT_TRUE(std::get<Fail>(actions[2][0]).lost);
  for (int i = 0; i < 3; ++i) exchange();
  for (const int rank : {0, 1}) ranks[rank].on(Submitted{kKey}, TimePoint(), actions[rank]);
  for (int i = 0; i < 3; ++i) exchange();
  for (const int rank : {0, 1}) {
    const auto count = [&]<class One>(const One*) {
      return std::ranges::count_if(actions[rank], [](const Action& one) { return std::holds_alternative<One>(one); });
    };
    EXPECT_EQ(count(static_cast<const Release*>(nullptr)), 1);
    EXPECT_EQ(count(static_cast<const Fail*>(nullptr)), 0);
  }
}

}  // namespace
}  // namespace horo
