// A rank of `horo run` that goes on from the newest checkpoint in FOLDER, saves one more step and fails; from step LAST
// on it ends in good order.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "horo/checkpoint/catalog.h"
#include "tests/horo/checkpoint/states.h"

int main(int argc, char** argv) {
  namespace checkpoint = horo::checkpoint;
  if (argc != 3) return 2;
  const std::string folder = argv[1];
  try {
    horo::Session session(horo::config_from_environment());
    const std::vector<checkpoint::Listed> found = checkpoint::list(folder);
    const std::uint64_t step = found.empty() ? 0 : found.front().step.value();
    if (step >= std::strtoull(argv[2], nullptr, 10)) {
      std::cout << "ends at step " << step << std::endl;
      return 0;
    }
    const checkpoint::State state({{"a", "float32", {100, 10}}}, step);
    checkpoint::SaveOptions options;
    options.path = folder + "/step-" + std::to_string(step + 1);
    options.step = step + 1;
    options.locks = true;
    checkpoint::save(&session, options, state.tensors());
    return 3;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
