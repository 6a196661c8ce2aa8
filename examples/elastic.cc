// Gradient descent on ranks that die and join: each has its own sample of y = 3x + 2, and the same two parameters.
//
//   tools/setup && cmake --preset release && cmake --build --preset release --target elastic_example
//   horo run -n 4 --min-np 2 build/release/examples/elastic
//
// Kill one of the ranks: the others go on, another one takes its place and gets the parameters from them.
#include <poll.h>

#include <array>
#include <cstddef>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "horo/horo.h"
#include "horo/state/transfer.h"

namespace {

constexpr std::int64_t kSteps = 600;
constexpr float kLearningRate = 0.5F;
constexpr int kPauseMs = 10;                // after each step, so that there is time to kill a rank
const std::string kTerms = "model=line\n";  // what a rank that joins must have, too

struct State {
  std::int64_t step = 0;
  std::array<float, 2> line{};  // slope and offset
};

void sum(horo::Session& session, const std::string& name, std::vector<float>& values) {
  horo::TensorSpec spec;
  spec.name = name;
  spec.op = horo::ReduceOp::kSum;
  spec.shape = {static_cast<std::int64_t>(values.size())};
  session.run(spec, values.data(), values.data());
}

// All ranks call it: those that have the state give it to those that have joined.
void share(horo::Session& session, State& state, bool has_state) {
  const std::array<horo::NamedBuffer, 2> buffers{{
      {"step", "int64", reinterpret_cast<std::byte*>(&state.step), sizeof state.step},
      {"line", "float32[2]", reinterpret_cast<std::byte*>(state.line.data()), sizeof state.line},
  }};
  for (std::vector<float> lacking{1}; lacking[0] > 0;) {  // again, if a rank dies meanwhile
    const horo::Transferred moved = transfer_state(session, buffers, has_state);
    if (!has_state && moved.is_complete) session.synced(text_of(moved));
    has_state = has_state || moved.is_complete;
    lacking[0] = has_state ? 0 : 1;
    sum(session, "ranks without the state", lacking);
  }
}

void train(horo::Session& session, State& state) {
  const float x = static_cast<float>(session.members()[static_cast<std::size_t>(session.topology().rank)]) / 4 - 1;
  while (state.step < kSteps) {
    const float error = state.line[0] * x + state.line[1] - (3 * x + 2);
    // The gradient, the number of ranks that have given theirs, and how many of them know ranks that wait.
    std::vector<float> sums{error * x, error, 1, session.joiners().empty() ? 0.0F : 1.0F};
    sum(session, "gradient", sums);
    for (std::size_t i = 0; i < 2; ++i) state.line[i] -= kLearningRate * sums[i] / sums[2];
    ++state.step;
    ::poll(nullptr, 0, kPauseMs);
    if (sums[3] == 0) continue;
    const std::array works = {session.grow()};
    session.wait(works, horo::TimePoint::max());
    works.front()->outcome();
    share(session, state, true);
  }
}

}  // namespace

int main() {
  try {
    std::optional<horo::Config> config = horo::config_from_environment();
    std::optional<horo::Session> session;
    State state;
    while (config) {
      try {
        if (config->joins) {
          session.emplace(*config, horo::JoinTerms{kTerms});
          share(*session, state, false);
        } else {
          session.emplace(*config);
        }
        session->can_grow(kTerms);
        train(*session, state);
        config.reset();
      } catch (const horo::PeerLost&) {  // if this rank was evicted, because it stood still, it joins again
        if (!session || !(config = horo::rejoin(*session))) throw;
        session.reset();
      }
    }
    const horo::Topology topology = session->topology();
    if (topology.rank == 0) {
      std::cout << "y = " << state.line[0] << " x + " << state.line[1] << " after " << state.step << " steps, on "
                << topology.size << " ranks\n";
    }
    session->shutdown();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "elastic: " << error.what() << "\n";
    return 1;
  }
}
