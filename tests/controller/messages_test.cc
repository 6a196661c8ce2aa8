#include "controller/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/id_set.h"
#include "horo/base/error.h"
#include "tests/controller/simulator.h"

namespace horo {
namespace {

using Ids = std::vector<std::uint32_t>;

Ids through_wire(Ids ids, std::uint32_t limit, std::size_t* bytes = nullptr) {
  ByteWriter out;
  write_ids(out, ids);
  if (bytes != nullptr) *bytes = out.bytes().size();
  ByteReader in(out.bytes());
  ids = read_ids(in, limit);
  in.expect_end();
  return ids;
}

TEST(IdSet, IsReadInAscendingOrder) {
  EXPECT_EQ(through_wire({}, 10), Ids());
  EXPECT_EQ(through_wire({7}, 10), Ids({7}));
  EXPECT_EQ(through_wire({9, 0, 4}, 10), Ids({0, 4, 9}));
  EXPECT_EQ(through_wire({4'000'000'000, 1}, UINT32_MAX), Ids({1, 4'000'000'000}));
}

TEST(IdSet, AnIdOfADenseSetTakesAnEighthOfAByte) {
  Ids ids(8000);
  for (std::uint32_t i = 0; i < ids.size(); ++i) ids[i] = 100 + i;
  std::size_t bytes = 0;
  EXPECT_EQ(through_wire(ids, 10'000, &bytes), ids);
  EXPECT_LE(bytes, 1000U + 9);
}

TEST(IdSet, AnIdBeyondTheLimitIsRefused) {
  EXPECT_THROW(through_wire({10}, 10), ProtocolError);
  EXPECT_THROW(through_wire({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 10), ProtocolError);
}

UpMessage up_message() {
  UpMessage message;
  message.applied = 7;
  message.age_us = 300;
  message.active = {3};
  message.requests = {{gradient("a.weight", {2, 0, 3}), true}};
  message.present = {1, 2, 9};
  message.absent = {4};
  message.plans = {1, 2};
  message.partial_plans = {{3, {0, 5}}};
  message.answers = {{9, "train.py:3 main"}};
  message.ended = {2, 5};
  message.done = {{0, 3}, {2, 1}};
  message.rounds = {{{0, 77}, {300, 1}}, {{2, UINT64_MAX}, {UINT64_MAX, 0}}};
  message.failed_rounds = {{{0, 77}, "ValueError: no"}};
  return message;
}

DownMessage down_message() {
  DownMessage message;
  message.items.emplace_back(ReleaseTensors{{{TensorName{0, 1, "x"}, 4}, {{}, 5}}, {0, 2}, {}, false, {2, 700'000}});
  message.items.emplace_back(SkipTensors{{{TensorName{0, 0, "y"}, {}}}});
  message.items.emplace_back(ReleasePlan{2, {{0, {1}}, {3, {0, 1, 2}}}, true, {1, 0}});
  message.items.emplace_back(DefinePlan{3, {5, 4}});
  message.items.emplace_back(DissolvePlan{1});
  message.items.emplace_back(FailTensors{{{{1, 2, "z"}, true, "what"}, {{1, 2, "a"}, false, ""}}, "why", {0, 2}});
  message.items.emplace_back(RequestDiagnosis{9});
  message.items.emplace_back(ReleaseTensors{{{{}, 5}}, {}, {1, 2}});
  message.items.emplace_back(DefineSet{{TensorName{0, 0, "add#0"}, {}}, 1, "tp0", {0, 2}, true});
  message.items.emplace_back(EndSet{{TensorName{0, 0, "remove#0"}, {}}, 1});
  message.items.emplace_back(JoinOver{1, 2, "lost"});
  message.items.emplace_back(SkipTensors{{{{}, 5}}, {0, 1}});
  message.items.emplace_back(FailTensors{{{{1, 2, "z"}, false, "what"}}, "why", {}, {1}});
  message.items.emplace_back(ForgetTensors{{4, 5, 70}});
  return message;
}

TEST(Messages, AReleaseNamesTheLastRankAndTheMessageWhenItWasSent) {
  DownMessage message = down_message();
  message.sent = TimePoint{} + std::chrono::nanoseconds(123'456'789);
  const DownMessage back = decode_down(encode(message), world_of(3).coordinator);
  EXPECT_EQ(back.sent, message.sent);
  const auto& tensors = std::get<ReleaseTensors>(back.items[0]);
  EXPECT_EQ(tensors.last.rank, 2);
  EXPECT_EQ(tensors.last.hold_us, 700'000U);
  EXPECT_FALSE(tensors.reports_done);
  const auto& plan = std::get<ReleasePlan>(back.items[2]);
  EXPECT_EQ(plan.last.rank, 1);
  EXPECT_EQ(plan.last.hold_us, 0U);
  EXPECT_TRUE(plan.reports_done);
  EXPECT_EQ(decode_down(encode(down_message()), world_of(3).coordinator).sent, TimePoint{});
  std::get<ReleaseTensors>(message.items[0]).last.rank = 3;
  EXPECT_THROW(decode_down(encode(message), world_of(3).coordinator), ProtocolError);
}

TEST(Messages, FiguresRideOnAReportAndCostNothingWithoutThem) {
  UpMessage message = up_message();
  const std::size_t bytes = encode(message).size();
  message.figures.assign(100, std::byte{8});
  message.figures_age_us = 77;
  EXPECT_EQ(encode(message).size(), bytes + 102);
  const UpMessage back = decode_up(encode(message), world_of(3).coordinator);
  EXPECT_EQ(back.figures, message.figures);
  EXPECT_EQ(back.figures_age_us, 77U);
  EXPECT_EQ(back.age_us, 300U);
  message.figures.resize(kMaxFiguresBytes + 1);
  EXPECT_THROW(decode_up(encode(message), world_of(3).coordinator), ProtocolError);
  UpMessage none;
  none.figures = message.figures;
  EXPECT_TRUE(none.empty());
}

TEST(Messages, AnUpMessageIsReadAsItWasWritten) {
  const UpMessage back = decode_up(encode(up_message()), world_of(3).coordinator);
  EXPECT_EQ(back.applied, 7U);
  EXPECT_EQ(back.age_us, 300U);
  EXPECT_EQ(back.active, Ids({3}));
  ASSERT_EQ(back.requests.size(), 1U);
  EXPECT_EQ(back.requests[0].spec, gradient("a.weight", {2, 0, 3}));
  EXPECT_TRUE(back.requests[0].absent);
  EXPECT_EQ(back.present, Ids({1, 2, 9}));
  EXPECT_EQ(back.absent, Ids({4}));
  EXPECT_EQ(back.plans, Ids({1, 2}));
  ASSERT_EQ(back.partial_plans.size(), 1U);
  EXPECT_EQ(back.partial_plans[0].absent_slots, Ids({0, 5}));
  ASSERT_EQ(back.answers.size(), 1U);
  EXPECT_EQ(back.answers[0].call_sites, "train.py:3 main");
  EXPECT_EQ(back.ended, Ids({2, 5}));
  ASSERT_EQ(back.done.size(), 2U);
  EXPECT_EQ(back.done[1].set, 2U);
  EXPECT_EQ(back.done[0].tensors, 3U);
  ASSERT_EQ(back.rounds.size(), 2U);
  EXPECT_EQ(back.rounds[0].stream, (RoundStream{0, 77}));
  EXPECT_EQ(back.rounds[0].round, (RoundNumber{300, 1}));
  EXPECT_EQ(back.rounds[1].stream, (RoundStream{2, UINT64_MAX}));
  EXPECT_EQ(back.rounds[1].round, (RoundNumber{UINT64_MAX, 0}));
  ASSERT_EQ(back.failed_rounds.size(), 1U);
  EXPECT_EQ(back.failed_rounds[0].stream, (RoundStream{0, 77}));
  EXPECT_EQ(back.failed_rounds[0].reason, "ValueError: no");
}

TEST(Messages, ADownMessageIsReadInOrder) {
  const std::vector<std::byte> bytes = encode(down_message());
  const DownMessage back = decode_down(bytes, world_of(3).coordinator);
  ASSERT_EQ(back.items.size(), 14U);
  EXPECT_EQ(std::get<ForgetTensors>(back.items[13]).tensors, Ids({4, 5, 70}));
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(back.items[i].index(), i);
  EXPECT_EQ(std::get<ReleaseTensors>(back.items[0]).tensors[0].name, (TensorName{0, 1, "x"}));
  EXPECT_EQ(std::get<FailTensors>(back.items[5]).text, "why");
  EXPECT_THAT(std::get<FailTensors>(back.items[5]).missing, testing::ElementsAre(0, 2));
  EXPECT_TRUE(std::get<ReleasePlan>(back.items[2]).reports_done);
  EXPECT_FALSE(std::get<ReleaseTensors>(back.items[7]).reports_done);
  EXPECT_EQ(std::get<RequestDiagnosis>(back.items[6]).question, 9U);
  EXPECT_THAT(std::get<ReleaseTensors>(back.items[7]).ranks, testing::ElementsAre(1, 2));
  EXPECT_EQ(std::get<DefineSet>(back.items[8]).name, "tp0");
  EXPECT_TRUE(std::get<DefineSet>(back.items[8]).shrinks);
  EXPECT_EQ(std::get<EndSet>(back.items[9]).set, 1U);
  EXPECT_EQ(std::get<JoinOver>(back.items[10]).last, 2);
  EXPECT_THAT(std::get<SkipTensors>(back.items[11]).ranks, testing::ElementsAre(0, 1));
  EXPECT_THAT(std::get<FailTensors>(back.items[5]).ranks, testing::IsEmpty());
  EXPECT_THAT(std::get<FailTensors>(back.items[12]).ranks, testing::ElementsAre(1));
  EXPECT_EQ(encode(back), bytes);
}

TEST(Messages, HasNamesOrBits) {
  EXPECT_TRUE(up_message().has_names() && up_message().has_bits());
  EXPECT_FALSE(UpMessage{}.has_names() || UpMessage{}.has_bits());
  DownMessage message;
  message.items.emplace_back(ReleasePlan{2, {}});
  EXPECT_TRUE(!message.has_names() && message.has_bits());
  message.items.front() = FailTensors{};
  EXPECT_TRUE(message.has_names() && !message.has_bits());
}

TEST(Messages, AnAnswerAloneIsAMessage) {
  UpMessage message;
  EXPECT_TRUE(message.empty());
  message.answers = {{1, ""}};
  EXPECT_FALSE(message.empty() || message.has_names() || message.has_bits());
}

TEST(Messages, OnlyReleasesCanReportDone) {
  std::vector<std::byte> bytes = encode(DownMessage{{RequestDiagnosis{9}}});
  bytes[4] |= std::byte{0x80};
  EXPECT_THROW(decode_down(bytes, world_of(2).coordinator), ProtocolError);
}

TEST(Messages, AnAnswerBeyondItsLimitIsRefused) {
  UpMessage message;
  message.answers = {{1, std::string(kMaxAnswerBytes + 1, 'x')}};
  EXPECT_THROW(decode_up(encode(message), world_of(2).coordinator), ProtocolError);
}

TEST(Messages, ABegunRoundAloneIsNoMessageButAFailedOneIs) {
  UpMessage message;
  message.rounds = {{{0, 1}, {0, 0}}};
  EXPECT_TRUE(message.empty());
  message.failed_rounds = {{{0, 1}, ""}};
  EXPECT_FALSE(message.empty() || message.has_names() || message.has_bits());
}

TEST(Messages, ABegunRoundTakes18Bytes) {
  UpMessage message;
  const std::size_t without = encode(message).size();
  message.rounds = {{{0, UINT64_MAX}, {127, 1}}};
  EXPECT_EQ(encode(message).size() - without, 18U);
}

TEST(Messages, AnInvalidRoundIsRefused) {
  UpMessage message;
  message.rounds = {{{0, 0}, {1, 1}}};
  EXPECT_THROW(decode_up(encode(message), world_of(2).coordinator), ProtocolError);
  message.rounds.clear();
  message.failed_rounds = {{{0, 1}, std::string(kMaxReasonBytes + 1, 'x')}};
  EXPECT_THROW(decode_up(encode(message), world_of(2).coordinator), ProtocolError);
  message.failed_rounds = {{{0, 1}, ""}};
  std::vector<std::byte> bytes = encode(message);
  bytes.insert(bytes.end() - 14, std::byte{0xff});  // the number of begun rounds
  EXPECT_THROW(decode_up(bytes, world_of(2).coordinator), ProtocolError);
}

TEST(Messages, ASpecKeepsItsRoundStream) {
  UpMessage message;
  message.requests = {{gradient("x"), false}};
  const std::size_t without = encode(message).size();
  message.requests[0].spec.round_stream = 9;
  EXPECT_EQ(encode(message).size() - without, 8U);
  EXPECT_EQ(decode_up(encode(message), world_of(2).coordinator).requests[0].spec.round_stream, 9U);
}

TEST(Messages, TheWaitsOfAnAnswerArriveUnchangedAndAreLimited) {
  UpMessage message;
  const std::vector<Awaited> waits = {{{0, 1, "x"}, false}, {{2, 0, "join"}, true}};
  message.answers = {{7, "a.py:1 main", std::chrono::milliseconds(60'001), {waits, {}}}};
  const UpMessage back = decode_up(encode(message), world_of(2).coordinator);
  EXPECT_EQ(back.answers[0].unchanged.count(), 60'001);
  EXPECT_THAT(back.answers[0].threads, testing::ElementsAre(waits, testing::IsEmpty()));
  message.answers[0].threads.resize(kMaxWaitingThreads + 1);
  EXPECT_THROW(decode_up(encode(message), world_of(2).coordinator), ProtocolError);
  message.answers[0].threads = {std::vector<Awaited>(kMaxAwaitedTensors + 1, waits[0])};
  EXPECT_THROW(decode_up(encode(message), world_of(2).coordinator), ProtocolError);
}

TEST(Messages, EmptyListsOfStepEndsTakeNoBytes) {
  UpMessage message = up_message();
  message.rounds.clear();
  message.failed_rounds.clear();
  message.done.clear();
  const std::size_t with = encode(message).size();
  message.ended.clear();
  EXPECT_EQ(with - encode(message).size(), 10U);
  EXPECT_EQ(encode(DownMessage{{ReleaseTensors{{{{}, 5}}, {}, {}}}}).size(), 18U);
}

TEST(Messages, EveryTruncationIsRefused) {
  const CoordinatorConfig config = world_of(3).coordinator;
  UpMessage without_step_ends = up_message();
  without_step_ends.ended.clear();  // a message may end there
  without_step_ends.done.clear();
  without_step_ends.rounds.clear();
  without_step_ends.failed_rounds.clear();
  const auto up = encode(without_step_ends);
  const auto down = encode(down_message());
  const auto with_rounds = encode(up_message());
  UpMessage without_rounds = up_message();
  without_rounds.rounds.clear();
  without_rounds.failed_rounds.clear();
  const std::size_t before_rounds = encode(without_rounds).size();  // a message may end there too
  for (std::size_t n = before_rounds + 1; n < with_rounds.size(); ++n) {
    EXPECT_THROW(decode_up(std::span(with_rounds).first(n), config), ProtocolError);
  }
  EXPECT_TRUE(decode_up(std::span(with_rounds).first(before_rounds), config).rounds.empty());
  for (std::size_t n = 0; n < up.size(); ++n) EXPECT_THROW(decode_up(std::span(up).first(n), config), ProtocolError);
  for (std::size_t n = 0; n < down.size(); ++n) {
    EXPECT_THROW(decode_down(std::span(down).first(n), config), ProtocolError);
  }
}

TEST(Messages, LimitsOfTheConfigurationHold) {
  CoordinatorConfig config = world_of(3).coordinator;
  config.max_dims = 2;
  EXPECT_THROW(decode_up(encode(up_message()), config), ProtocolError);
  config = world_of(3).coordinator;
  config.max_name_bytes = 7;
  EXPECT_THROW(decode_up(encode(up_message()), config), ProtocolError);
  config = world_of(2).coordinator;  // has no rank 2
  EXPECT_THROW(decode_down(encode(down_message()), config), ProtocolError);
  config = world_of(3).coordinator;
  config.max_plans = 2;
  EXPECT_THROW(decode_down(encode(down_message()), config), ProtocolError);
}

TEST(Messages, AnInvalidShapeIsRefused) {
  UpMessage message;
  message.requests = {{gradient("x", {-1}), false}};
  EXPECT_THROW(decode_up(encode(message), world_of(2).coordinator), ProtocolError);
  message.requests = {{gradient("x", {INT64_MAX, INT64_MAX}), false}};
  EXPECT_THROW(decode_up(encode(message), world_of(2).coordinator), ProtocolError);
}

}  // namespace
}  // namespace horo
