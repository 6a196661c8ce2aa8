// Arbitrary bytes from a peer: the result is a ProtocolError or a message.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "controller/messages.h"
#include "horo/base/error.h"
#include "tests/controller/ranks.h"
#include "tests/effort.h"

namespace horo {
namespace {

using Bytes = std::vector<std::byte>;

// Messages of a real run of three ranks, of all kinds.
std::vector<SentMessage> recorded() {
  SimulationConfig config = world_of(3);
  config.keep_bytes = true;
  config.coordinator.kept_tensors = 2;
  std::vector<Program> programs(3);
  for (int rank = 0; rank < 3; ++rank) {
    Program& program = programs[static_cast<std::size_t>(rank)];
    program = {AddSetCall{{1, 2}}, WaitCall{}};
    for (int step = 0; step < 2 && rank > 0; ++step) {
      for (const TensorSpec& spec : {in_set(1, "x"), message(1, "m", 0, 1)}) program.emplace_back(SubmitCall{spec});
      program.emplace_back(WaitCall{});
      program.emplace_back(EndStepCall{1});
    }
    TensorSpec in_round = gradient("r", {3});
    in_round.round_stream = 5;
    program.emplace_back(BeginRoundCall{{0, 5}, {7, 1}});
    program.emplace_back(rank == 1 ? Call{FailRoundCall{{0, 5}, "no"}} : Call{SubmitCall{in_round}});
    program.emplace_back(SubmitCall{rank == 0 ? gradient("u", {3}) : in_set(1, "u", {3})});
    if (rank == 1) program.emplace_back(SubmitCall{gradient("u", {3})});
    program.emplace_back(JoinCall{});
    program.insert(program.end(), {WaitCall{}, RemoveSetCall{1}, WaitCall{}});
    if (rank != 1) program.insert(program.end(), {AddSetCall{{0, 2}, "tp"}, WaitCall{}, RemoveSetCall{0, "tp"}});
    for (int step = 0; step < 6; ++step) {
      for (int i = 0; i < 4; ++i) {
        const std::vector<std::int64_t> shape = {step == 4 && i == 2 && rank == 1 ? 5 : 4};
        program.emplace_back(SubmitCall{gradient("t" + std::to_string(i), shape), i == 3 && step > rank});
      }
      program.emplace_back(WaitCall{});
      program.emplace_back(EndStepCall{});
    }
  }
  Simulation world(config, programs);
  world.run();
  return world.sent();
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_); }

  Bytes mutate(Bytes bytes, const Bytes& other) {
    for (std::size_t n = 1 + below(4); n > 0; --n) {
      if (bytes.empty()) bytes.push_back(any());
      const auto at = static_cast<std::ptrdiff_t>(below(bytes.size()));
      switch (below(6)) {
        case 0:
          bytes[static_cast<std::size_t>(at)] ^= std::byte{1} << below(8);
          break;
        case 1:
          bytes[static_cast<std::size_t>(at)] = any();
          break;
        case 2:
          bytes.resize(static_cast<std::size_t>(at));
          break;
        case 3:
          bytes.insert(bytes.begin() + at, any());
          break;
        case 4:
          bytes.erase(bytes.begin() + at);
          break;
        default:
          bytes.insert(bytes.begin() + at, other.begin(),
                       other.begin() + static_cast<std::ptrdiff_t>(below(other.size())));
      }
    }
    return bytes;
  }

 private:
  std::byte any() { return below(2) == 0 ? std::byte{0xff} : static_cast<std::byte>(below(256)); }

  std::mt19937_64 random_;
};

TEST(Fuzz, DecodersReturnAMessageOrThrowProtocolError) {
  const std::vector<SentMessage> messages = recorded();
  const CoordinatorConfig config = world_of(3).coordinator;
  Mutator mutator(1);
  int refused = 0;
  for (int i = 0; i < 100'000; ++i) {
    const SentMessage& message = messages[mutator.below(messages.size())];
    const Bytes bytes = mutator.mutate(message.send.bytes, messages[mutator.below(messages.size())].send.bytes);
    try {
      if (message.from == 0) {
        static_cast<void>(decode_down(bytes, config));
      } else {
        static_cast<void>(decode_up(bytes, config));
      }
    } catch (const ProtocolError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10'000);
  EXPECT_LT(refused, 100'000);
}

// Three ranks with known plans and a process set; t2 is new.
Ranks in_the_middle() {
  Ranks ranks(3);
  ranks.add_set({0, 1});
  ranks.submit_on({0, 1}, {in_set(1, "s")});
  learn_plans(ranks, {gradient("t0", {4}), gradient("t1", {4})});
  return ranks;
}

// In the set: a tensor, a send_recv, a unit, a round that is given up, and a join.
void submit_more(EngineModel& engine) {
  TensorSpec unit = in_set(1, "u");
  unit.unit = "u";
  unit.unit_size = 1;
  TensorSpec in_round = in_set(1, "r");
  in_round.round_stream = 5;
  engine.begin_round({1, 5}, {7, 1});
  for (const TensorSpec& spec : {in_set(1, "s"), message(1, "m", 1, 0), unit, in_round}) engine.submit(spec);
  engine.fail_round({1, 5}, "no");
  engine.join(1);
}

// The next message of rank 1 to rank 0, or of rank 0 to rank 1.
Bytes next_message(int from) {
  Ranks ranks = in_the_middle();
  for (int rank = 0; rank < 3; ++rank) {
    for (const char* name : {"t0", "t1", "t2"}) ranks[rank].submit(gradient(name, {4}));
    if (rank < 2) submit_more(ranks[rank]);
  }
  Bytes up = ranks.turn(1).at(0).bytes;
  if (from == 1) return up;
  ranks[0].post(Received{1, up});
  ranks[0].post(Received{2, ranks.turn(2).at(0).bytes});
  return ranks.turn(0).at(0).bytes;
}

// A rank with tensors in flight receives the bytes, then continues until it throws.
bool takes(int rank, const Bytes& bytes) {
  Ranks ranks = in_the_middle();
  for (const char* name : {"t0", "t1", "t2"}) ranks[rank].submit(gradient(name, {4}));
  submit_more(ranks[rank]);
  try {
    ranks.turn(rank);
    ranks[rank].post(Received{1 - rank, bytes});
    ranks.turn(rank);
    ranks[rank].post(StepEnded{});
    ranks[rank].post(RankLeft{2});
    ranks.turn(rank);
  } catch (const ProtocolError&) {
    return false;
  }
  return true;
}

TEST(Fuzz, CoordinatorsContinueOrThrowProtocolError) {
  Mutator mutator(2);
  const Bytes messages[] = {next_message(1), next_message(0)};  // for rank 0, for rank 1
  ASSERT_TRUE(takes(0, messages[0]) && takes(1, messages[1]));
  int taken = 0;
  for (int i = 0; i < test::effort(10'000); ++i) {
    const int rank = i % 2;
    taken += takes(rank, mutator.mutate(messages[rank], messages[1 - rank])) ? 1 : 0;
  }
  EXPECT_GT(taken, test::effort(100));
  EXPECT_LT(taken, test::effort(9'000));
}

}  // namespace
}  // namespace horo
