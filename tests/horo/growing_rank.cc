// A rank of an elastic job that grows. tools/soaks/grow.py starts it: growing_rank STEPS VALUES
//
// In each step the ranks add up VALUES numbers, which depend on member and step, to their state; the sum also says
// which members have contributed, and whether one of them knows processes that are ready to join. Those get the state
// at the end of the step. A rank that was evicted joins again. TEST_KILL and TEST_STOP: see kill_points.h.
// TEST_PAUSE_MS: after each step. At the end each rank prints one line: its member, the hash and a sum of its state,
// the members of each step by their masks, and the longest step and border.
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "horo/base/hash.h"
#include "horo/horo.h"
#include "horo/state/transfer.h"
#include "tests/horo/kill_points.h"

namespace horo {
namespace {

constexpr int kMaskBits = 50;  // members in one number of the sum, exactly
constexpr std::size_t kMasks = 3;
constexpr std::size_t kKnows = kMasks;  // the place of what tells of processes that wait
constexpr std::size_t kFirstValue = kMasks + 1;
constexpr const char* kTerms = "state=growing\n";

double value_of(std::uint32_t member, std::int64_t step, std::size_t place) {
  return static_cast<double>((member * 31 + static_cast<std::uint64_t>(step) * 17 + place) % 97);
}

class GrowingProgram {
 public:
  // state: zeros.
  GrowingProgram(Session& session, std::uint32_t member, std::int64_t steps, std::vector<double> state)
      : session_(session), member_(member), steps_(steps), state_(std::move(state)) {
    history_.resize(static_cast<std::size_t>(steps) * kMasks);
    if (const char* pause = std::getenv("TEST_PAUSE_MS")) pause_ms_ = std::atoi(pause);
  }

  // has_state: not so at a process that has just joined.
  void run(bool has_state) {
    session_.can_grow(kTerms);
    if (!has_state) give(false);
    while (step_ < steps_) {
      const TimePoint begin = Clock::now();
      const bool knows = run_step();
      longest_step_ = std::max(longest_step_, Clock::now() - begin);
      ::poll(nullptr, 0, pause_ms_);
      if (knows && step_ < steps_) grow();
    }
    print();
  }

 private:
  bool run_step() {
    std::vector<double> sums(kFirstValue + state_.size());
    sums[member_ / kMaskBits] = static_cast<double>(std::uint64_t{1} << member_ % kMaskBits);
    sums[kKnows] = session_.joiners().empty() ? 0 : 1;
    for (std::size_t i = 0; i < state_.size(); ++i) sums[kFirstValue + i] = value_of(member_, step_, i);
    TensorSpec spec;
    spec.name = "sums";
    spec.dtype = DType::kFloat64;
    spec.op = ReduceOp::kSum;
    spec.shape = {static_cast<std::int64_t>(sums.size())};
    session_.run(spec, sums.data(), sums.data());
    for (std::size_t i = 0; i < state_.size(); ++i) state_[i] += sums[kFirstValue + i];
    std::copy_n(sums.begin(), kMasks, history_.begin() + static_cast<std::ptrdiff_t>(kMasks) * step_);
    ++step_;
    return sums[kKnows] > 0;
  }

  void grow() {
    const TimePoint begin = Clock::now();
    const std::array works = {session_.grow()};
    session_.wait(works, TimePoint::max());
    works.front()->outcome();
    give(true);
    longest_border_ = std::max(longest_border_, Clock::now() - begin);
  }

  // Ends when all members have the state.
  void give(bool has_state) {
    const auto bytes = [](auto& values) { return reinterpret_cast<std::byte*>(values.data()); };
    const std::array<NamedBuffer, 3> buffers{{
        {"step", "int64[1]", reinterpret_cast<std::byte*>(&step_), sizeof step_},
        {"state", "float64[" + std::to_string(state_.size()) + "]", bytes(state_), state_.size() * sizeof(double)},
        {"history", "float64[" + std::to_string(history_.size()) + "]", bytes(history_),
         history_.size() * sizeof(double)},
    }};
    for (double lacking = 1; lacking > 0;) {
      const Transferred moved = transfer_state(session_, buffers, has_state);
      if (!has_state && moved.is_complete) session_.synced(text_of(moved));
      has_state = has_state || moved.is_complete;
      lacking = has_state ? 0 : 1;
      TensorSpec spec;
      spec.name = "ranks without the state";
      spec.dtype = DType::kFloat64;
      spec.op = ReduceOp::kSum;
      session_.run(spec, &lacking, &lacking);
    }
  }

  // Of all values, each with a weight: exact.
  std::uint64_t sum() const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < state_.size(); ++i) sum += static_cast<std::uint64_t>(state_[i]) * (i % 97 + 1);
    return sum;
  }

  void print() const {
    std::cout << "grown " << member_ << " hash " << std::hex << hash_bytes(std::as_bytes(std::span(state_))) << std::dec
              << " sum " << sum() << " members ";
    for (std::size_t i = 0; i < history_.size(); i += kMasks) {
      if (i > 0 && std::equal(history_.begin() + static_cast<std::ptrdiff_t>(i),
                              history_.begin() + static_cast<std::ptrdiff_t>(i + kMasks),
                              history_.begin() + static_cast<std::ptrdiff_t>(i - kMasks))) {
        continue;
      }
      std::cout << (i > 0 ? "," : "") << i / kMasks << ":";
      for (std::size_t mask = 0; mask < kMasks; ++mask) {
        std::cout << (mask > 0 ? "+" : "") << static_cast<std::uint64_t>(history_[i + mask]);
      }
    }
    const auto ms = [](Duration time) { return std::chrono::duration_cast<std::chrono::milliseconds>(time).count(); };
    std::cout << " step " << ms(longest_step_) << " ms border " << ms(longest_border_) << " ms" << std::endl;
  }

  Session& session_;
  const std::uint32_t member_;
  const std::int64_t steps_;
  std::int64_t step_ = 0;
  std::vector<double> state_;
  std::vector<double> history_;  // masks of the members, by step
  Duration longest_step_{}, longest_border_{};
  int pause_ms_ = 0;
};

int run(int argc, char** argv) {
  if (argc != 3) return 2;
  std::optional<Config> config = config_from_environment();
  read_kills(config->rank);
  std::optional<Session> session;
  const auto values = static_cast<std::size_t>(std::atoll(argv[2]));
  while (config) {
    std::vector<double> state(values);  // while the others train on
    try {
      config->joins ? session.emplace(*config, JoinTerms{kTerms}) : session.emplace(*config);
      const auto member = static_cast<std::uint32_t>(config->rank);
      GrowingProgram(*session, member, std::atoll(argv[1]), std::move(state)).run(!config->joins);
      config.reset();
    } catch (const PeerLost&) {
      if (!session || !(config = rejoin(*session))) throw;
      session.reset();
    }
  }
  session->shutdown();
  forget_kills();
  return 0;
}

}  // namespace
}  // namespace horo

int main(int argc, char** argv) {
  try {
    return horo::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "growing_rank: " << error.what() << std::endl;
    return 1;
  }
}
