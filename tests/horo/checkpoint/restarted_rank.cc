// A rank of `horo run` that goes on from the newest checkpoint in FOLDER, saves one more step and fails; from step LAST
// on it ends in good order.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "horo/checkpoint/catalog.h"
#include "tests/horo/checkpoint/states.h"

namespace horo::checkpoint {
namespace {

int go_on(const std::string& folder, std::uint64_t last) {
  Session session(config_from_environment());
  const std::vector<Listed> found = list(folder);
  const std::uint64_t step = found.empty() ? 0 : found.front().step.value();
  if (step >= last) {
    std::cout << "ends at step " << step << std::endl;
    return 0;
  }
  const State state({{"a", "float32", {100, 10}}}, step);
  SaveOptions options;
  options.path = folder + "/step-" + std::to_string(step + 1);
  options.step = step + 1;
  options.locks = true;
  save(&session, options, state.tensors());
  return 3;
}

}  // namespace
}  // namespace horo::checkpoint

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    return horo::checkpoint::go_on(argv[1], std::strtoull(argv[2], nullptr, 10));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
