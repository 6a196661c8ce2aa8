// New names for ever: numbers of tensors out of use are forgotten on all ranks and given again. No report is lost.
#include <algorithm>
#include <set>

#include "controller/messages.h"
#include "horo/base/error.h"
#include "tests/controller/ranks.h"

namespace horo {
namespace {

CoordinatorConfig keeping(std::size_t tensors, std::size_t most) {
  CoordinatorConfig config;
  config.kept_tensors = tensors;
  config.max_tensors = most;
  return config;
}

// A tensor that comes in no step.
TensorSpec single(const std::string& name, std::vector<std::int64_t> shape = {256}, std::uint32_t set = 0) {
  TensorSpec spec = in_set(set, name, std::move(shape));
  spec.stepwise = false;
  return spec;
}

std::vector<DownMessage> down_messages(const Ranks& ranks, CoordinatorConfig config, int size) {
  config.size = size;
  std::vector<DownMessage> messages;
  for (const Send& send : ranks.sent) {
    if (send.to == 1) messages.push_back(decode_down(send.bytes, config));
  }
  return messages;
}

// Ids that the leader has forgotten, those that it forgot twice counted twice.
std::size_t forgotten(const std::vector<DownMessage>& messages) {
  std::size_t ids = 0;
  for (const DownMessage& message : messages) {
    for (const DownItem& item : message.items) {
      if (const auto* forget = std::get_if<ForgetTensors>(&item)) ids += forget->tensors.size();
    }
  }
  return ids;
}

// Whether every released tensor had an id.
bool all_have_ids(const std::vector<DownMessage>& messages) {
  const auto has_id = [](const TensorRef& ref) { return ref.id.has_value(); };
  for (const DownMessage& message : messages) {
    for (const DownItem& item : message.items) {
      const auto* release = std::get_if<ReleaseTensors>(&item);
      if (release != nullptr && !std::all_of(release->tensors.begin(), release->tensors.end(), has_id)) return false;
    }
  }
  return true;
}

// Three ranks that keep one tensor; "a" was released, and has number 0.
struct Crossing {
  CoordinatorConfig config = keeping(1, 64);
  Ranks ranks{3, config};

  explicit Crossing(const TensorSpec& a) {
    ranks.submit({a});
    for (int rank = 0; rank < 3; ++rank) ranks[rank].submit(single("b"));
    for (const int rank : {1, 2}) ranks.deliver(rank, ranks.turn(rank));
    down = ranks.turn(0);
  }
  // The ranks receive the message that releases "b" and forgets "a".
  void forget() {
    ranks.deliver(0, down);
    ranks.settle();
  }
  std::vector<Send> down;
};

TEST(Forgetting, NewNamesForEverNeedFewIds) {
  const CoordinatorConfig config = keeping(8, 16);
  Ranks ranks(3, config);
  for (int i = 0; i < 1000; ++i) ranks.submit({single("loss." + std::to_string(i))});
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks[rank].stream(), ranks[0].stream());
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(ranks[2].times("loss." + std::to_string(i)), 1);
  const std::vector<DownMessage> messages = down_messages(ranks, config, 3);
  EXPECT_TRUE(all_have_ids(messages));
  EXPECT_GE(forgotten(messages), 980U);
  EXPECT_LE(ranks[0].coordinator().ready_times().size(), 16U);
}

TEST(Forgetting, ATensorThatIsUsedOftenKeepsItsNumber) {
  CoordinatorConfig config = keeping(8, 16);
  Ranks ranks(2, config);
  for (int i = 0; i < 200; ++i) ranks.submit({single("x"), single("loss." + std::to_string(i))});
  config.size = 2;
  int requests = 0;
  for (const Send& send : ranks.sent) {
    if (send.to != 0) continue;
    const UpMessage message = decode_up(send.bytes, config);
    for (const Request& request : message.requests) requests += request.spec.name == "x" ? 1 : 0;
  }
  EXPECT_EQ(requests, 1);
  EXPECT_EQ(ranks[1].times("x"), 200);
}

TEST(Forgetting, AnUndeclaredTensorMayBeDeclaredAgain) {
  Ranks ranks(2, keeping(8, 16));
  for (int rank = 0; rank < 2; ++rank) ranks[rank].undeclare_every(2 + static_cast<std::uint64_t>(rank));
  for (int i = 0; i < 100; ++i) ranks.submit({single("x"), single("y"), single("loss." + std::to_string(i))});
  EXPECT_EQ(ranks[1].times("x") + ranks[1].times("y"), 200);
  EXPECT_EQ(ranks[0].stream(), ranks[1].stream());
}

// Two keys have one number; the one that used it last is undeclared.
TEST(Forgetting, AllKeysOfANumberForgetIt) {
  Ranks ranks(2, keeping(1, 16));
  TensorSpec gather = single("g", {2, 7});
  gather.kind = CollectiveKind::kAllGather;
  TensorSpec longer = gather;
  longer.shape = {3, 7};
  ranks[1].undeclare_every(2);
  ranks.submit({gather});
  ranks.submit({longer});
  ranks[1].undeclare_every(0);
  for (int i = 0; i < 8; ++i) ranks.submit({single("loss." + std::to_string(i))});
  ranks[1].submit(gather);
  EXPECT_TRUE(ranks.turn(1).at(0).has_names);
}

TEST(Forgetting, AKnownPlanKeepsItsNumbersAndBits) {
  const std::vector<TensorSpec> gradients = {gradient("t0"), gradient("t1"), gradient("t2"), gradient("t3")};
  Ranks ranks(2, keeping(1, 16));
  learn_plans(ranks, gradients);
  for (int i = 0; i < 50; ++i) {
    ranks.submit({single("loss." + std::to_string(i))});
    ranks.sent.clear();
    ranks.step(gradients);
    for (const Send& send : ranks.sent) ASSERT_FALSE(send.has_names);
  }
  EXPECT_TRUE(ranks[1].stream().back().known);
}

TEST(Forgetting, AReportByNumberThatCrossesTheForgettingCounts) {
  Crossing world(single("a"));
  world.ranks[1].submit(single("a"));
  const std::vector<Send> report = world.ranks.turn(1);
  ASSERT_TRUE(report.at(0).has_bits && !report.at(0).has_names);
  world.ranks.deliver(1, report);
  world.forget();
  world.ranks.submit_on({0, 2}, {single("a")});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(world.ranks[rank].times("a"), 2);
    EXPECT_EQ(world.ranks[rank].stream(), world.ranks[0].stream());
  }
}

TEST(Forgetting, AQueuedReportIsSentByNameAfterTheForgetting) {
  Crossing world(single("a"));
  world.ranks[1].submit(single("a"));
  world.ranks.deliver(0, world.down);
  EXPECT_TRUE(world.ranks.turn(1).at(0).has_names);
}

TEST(Forgetting, ACrossingReportOfAnotherShapeIsAMismatchThatNamesBoth) {
  Crossing world(single("a", {4}));
  world.ranks[1].submit(single("a", {4}));
  world.ranks.deliver(1, world.ranks.turn(1));
  world.forget();
  world.ranks.submit_on({0, 2}, {single("a", {5})});
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(world.ranks[rank].failures().size(), 1U);
    EXPECT_THAT(world.ranks[rank].failures()[0].text, AllOf(HasSubstr("'a'"), HasSubstr("[4]"), HasSubstr("[5]")));
  }
  world.ranks.submit({single("a", {6})});
  EXPECT_EQ(world.ranks[2].times("a"), 2);
}

TEST(Forgetting, AnIdIsNotGivenAgainBeforeAllRanksHaveForgottenIt) {
  Crossing world(single("a"));
  world.ranks.deliver(0, {world.down.at(0)});  // to rank 1 alone
  world.ranks.deliver(1, world.ranks.turn(1));
  world.ranks[2].submit(single("a"));  // by its number
  world.ranks.deliver(2, world.ranks.turn(2));
  CoordinatorConfig config = world.config;
  config.size = 3;
  for (const TensorId next : {TensorId{2}, TensorId{3}, TensorId{4}}) {
    const TensorSpec pair = message(0, "m" + std::to_string(next) + " (0 to 1)", 0, 1);
    for (const int rank : {0, 1}) world.ranks[rank].submit(pair);
    world.ranks.deliver(1, world.ranks.turn(1));
    const std::vector<Send> down = world.ranks.turn(0);
    world.ranks.deliver(0, {down.at(0)});
    world.ranks.deliver(1, world.ranks.turn(1));
    const DownMessage released = decode_down(down.at(0).bytes, config);
    EXPECT_EQ(std::get<ReleaseTensors>(released.items.at(0)).tensors.at(0).id, next) << "0 is a on rank 2";
  }
}

TEST(Forgetting, ARankThatSubmitsNothingDelaysNoOther) {
  const CoordinatorConfig config = keeping(8, 16);
  Ranks ranks(3, config);
  ranks.add_set({0, 1});
  for (int i = 0; i < 500; ++i) ranks.submit_on({0, 1}, {single("loss." + std::to_string(i), {4}, 1)});
  EXPECT_TRUE(all_have_ids([&] {
    std::vector<DownMessage> messages = down_messages(ranks, config, 3);
    messages.erase(messages.begin());  // of the set, which is once
    return messages;
  }()));
  EXPECT_EQ(ranks[1].times("loss.499"), 1);
}

TEST(Forgetting, IdsOfRemovedSetsAreGivenAgain) {
  const CoordinatorConfig config = keeping(8, 16);
  Ranks ranks(3, config);
  for (std::uint32_t set = 1; set <= 60; ++set) {
    ranks.add_set({0, 1});
    ranks.submit_on({0, 1}, {single("s", {4}, set), single("t", {4}, set)});
    ranks.sent.clear();
    ranks.submit_on({0, 1}, {single("s", {4}, set), single("t", {4}, set)});
    for (const Send& send : ranks.sent) {
      if (send.to != 1) continue;
      ASSERT_TRUE(all_have_ids({decode_down(send.bytes, world_of(3).coordinator)})) << set;
    }
    ranks.remove_set(set);
  }
  EXPECT_TRUE(ranks[1].failures().empty());
}

TEST(Forgetting, MessagesUnitsAndGathersOfNewNamesGoOn) {
  const CoordinatorConfig config = keeping(4, 8);
  Ranks ranks(3, config);
  for (int i = 0; i < 100; ++i) {
    const std::string at = "." + std::to_string(i);
    ranks.submit_on({0, 2}, {message(0, "m" + at, 0, 2)});
    TensorSpec one = single("u1" + at), two = single("u2" + at);
    for (TensorSpec* spec : {&one, &two}) {
      spec->unit = "u" + at;
      spec->unit_size = 2;
    }
    for (int rank = 0; rank < 3; ++rank) {
      TensorSpec gather = single("g" + at, {rank + i, 2});
      gather.kind = CollectiveKind::kAllGather;
      for (const TensorSpec& spec : {one, two, gather}) ranks[rank].submit(spec);
    }
    ranks.settle();
    ASSERT_EQ(ranks[0].times("m" + at) + ranks[1].times("u2" + at) + ranks[2].times("g" + at), 3);
  }
  EXPECT_GT(forgotten(down_messages(ranks, config, 3)), 100U);
}

TEST(Forgetting, GoesOnAmongTheOthersAfterAJoin) {
  Ranks ranks(3, keeping(4, 8));
  ranks.submit({single("x")});
  ranks[2].join();
  ranks.settle();
  for (int i = 0; i < 50; ++i) ranks.submit_on({0, 1}, {single("loss." + std::to_string(i))});
  for (const int rank : {0, 1}) ranks[rank].join();
  ranks.settle();
  ranks.submit({single("x")});
  EXPECT_EQ(ranks[2].times("x"), 2);
  EXPECT_EQ(ranks[1].times("loss.49"), 1);
}

TEST(Forgetting, ASpecThatChangesWithEveryCallIsForgottenUnderItsName) {
  Ranks ranks(2, keeping(4, 600));
  for (int i = 0; i < 1000; ++i) ranks.submit({single("x", {i % 300, 7}), single("y", {i, 7})});
  EXPECT_EQ(ranks[1].times("x") + ranks[1].times("y"), 2000);
  EXPECT_EQ(ranks[0].stream(), ranks[1].stream());
}

TEST(Forgetting, ANumberThatTheRankHasForgottenIsRefused) {
  Crossing world(single("a"));
  world.forget();
  UpMessage report;
  report.applied = 2;
  report.present = {0};
  world.ranks[0].post(Received{1, encode(report)});
  EXPECT_THROW(world.ranks.turn(0), ProtocolError);
}

TEST(Forgetting, AnUnknownNumberAndATensorOfAPlanAreNotForgotten) {
  Ranks ranks(2);
  learn_plans(ranks, {gradient("t0")});
  for (const TensorId id : {TensorId{0}, TensorId{1}}) {
    DownMessage message;
    message.items.emplace_back(ForgetTensors{{id}});
    ranks[1].post(Received{0, encode(message)});
    EXPECT_THROW(ranks.turn(1), ProtocolError) << id;
  }
}

}  // namespace
}  // namespace horo
