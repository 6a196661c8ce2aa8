// One rank of the job that intruders visit: intruded_rank STEPS, with the settings of the environment. It says on
// stdout how far it is, and goes on past "exchanged" and "started" when it is given a line on stdin.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "horo/horo.h"

namespace horo {
namespace {

constexpr int kMaxElements = 20'000;

void say_and_wait(const char* what) {
  std::cout << what << std::endl;
  std::string line;
  std::getline(std::cin, line);
}

// Sums whose every element is known; false at the first one that is wrong.
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
                    say_and_wait("exchanged");
                    return all;
                  }));
  say_and_wait("started");
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
