// A rank of `horo run` that saves once to FOLDER and prints how that ended. Rank VICTIM ends itself with SIGKILL at the
// fail point POINT of the save.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "horo/base/fail_point.h"
#include "tests/horo/checkpoint/states.h"

namespace horo::checkpoint {
namespace {

const char* fatal_point = "";

void die_there(const char* name) noexcept {
  if (std::string_view(name) == fatal_point) ::kill(::getpid(), SIGKILL);
}

int save_once(const std::string& folder, int victim) {
  const Config config = config_from_environment();
  Session session(config);
  if (session.topology().rank == victim) fail_point_hook = die_there;
  const State state({{"a", "float32", {3000, 1000}}}, 1);
  Saver saver;
  SaveOptions options;
  options.path = folder + "/step-1";
  if (!begin_save(saver, &session, options, state.tensors())) return 3;
  take_all(saver, state);
  saver.start();
  try {
    saver.wait_until(TimePoint::max());
    std::cout << "published" << std::endl;
  } catch (const std::exception& error) {
    std::cout << "failed: " << error.what() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace horo::checkpoint

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  horo::checkpoint::fatal_point = argv[3];
  try {
    return horo::checkpoint::save_once(argv[1], std::atoi(argv[2]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
