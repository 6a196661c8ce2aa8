// One rank of the job that the intruder test attacks: intruded_rank STEPS, with the settings of the environment. It
// prints its progress on stdout, and after "exchanged" and "started" waits for a line on stdin.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "horo/horo.h"

namespace horo {
namespace {

constexpr int kMaxElements = 20'000;

void print_and_wait(const char* progress) {
  std::cout << progress << std::endl;
  std::string line;
  std::getline(std::cin, line);
}

// Runs all_reduces with known results; false at the first wrong element.
bool train(Session& session, int steps) {
  const int size = session.topology().size;
  for (int step = 0; step < steps; ++step) {
    TensorSpec spec;
    spec.name = "gradient" + std::to_string(step % 10);
    spec.shape = {1 + (step * 977) % kMaxElements};
    spec.once = false;
    std::vector<float> values(spec.elements());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 100 * (static_cast<std::size_t>(session.topology().rank) + 1));
    }
    session.run(spec, values.data(), values.data());
    const auto factor = static_cast<std::size_t>(size * (size + 1) / 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == static_cast<float>(i % 100 * factor)) continue;
      std::cout << "wrong: step " << step << ", element " << i << " is " << values[i] << std::endl;
      return false;
    }
    session.step_end(0);
  }
  return true;
}

int run_rank(int steps) {
  const Config config = config_from_environment();
  const Exchange exchange = make_tcp_exchange(config, 0);
  Session session(config, connect_tcp(config, 0, [&exchange](std::span<const std::byte> mine) {
                    auto all = exchange(mine);
                    print_and_wait("exchanged");
                    return all;
                  }));
  print_and_wait("started");
  if (!train(session, steps)) return 1;
  std::cout << "trained" << std::endl;
  return 0;
}

}  // namespace
}  // namespace horo

int main(int argc, char** argv) {
  try {
    return argc == 2 ? horo::run_rank(std::atoi(argv[1])) : 2;
  } catch (const std::exception& error) {
    std::cout << "failed: " << error.what() << std::endl;
    return 1;
  }
}
