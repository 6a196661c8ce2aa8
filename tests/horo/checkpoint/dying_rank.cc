// A rank of `horo run` that saves to FOLDER, prints how that ended, and saves again with the ranks that are left. Rank
// VICTIM ends itself with SIGKILL at the fail point POINT of the first save. Exit code 4: the others were told late.
#include <signal.h>
#include <unistd.h>

#include <chrono>
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

constexpr std::chrono::seconds kSoon{20};  // the locks of a rank are looked at each second
constexpr int kLate = 4;

// A save that begins while the ranks change fails on all of them, and the next one works.
void save_again(Session& session, SaveOptions options, const State& state) {
  const TimePoint until = Clock::now() + kSoon;
  options.path += "-again";
  for (;;) {
    try {
      save(&session, options, state.tensors());
      std::cout << "published again" << std::endl;
      return;
    } catch (const std::runtime_error&) {
      if (Clock::now() > until) throw;
    }
  }
}

int save_twice(const std::string& folder, int victim) {
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
  const TimePoint begin = Clock::now();
  try {
    saver.wait_until(TimePoint::max());
    std::cout << "published" << std::endl;
  } catch (const std::exception& error) {
    std::cout << "failed: " << error.what() << std::endl;
  }
  if (Clock::now() - begin > kSoon) return kLate;
  save_again(session, options, state);
  return 0;
}

}  // namespace
}  // namespace horo::checkpoint

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  horo::checkpoint::fatal_point = argv[3];
  try {
    return horo::checkpoint::save_twice(argv[1], std::atoi(argv[2]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
