// A process that saves a small state to FOLDER again and again, with steps from FIRST to LAST, and prints each step
// that was published. TEST_KILL_AT=N: it ends itself with SIGKILL before the N-th call that changes a file, of its
// second save on. TEST_OLD_KERNEL: two names cannot be exchanged, and all saves have one name.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "tests/horo/checkpoint/states.h"
#include "tests/horo/checkpoint/system_calls.h"

namespace horo::checkpoint {
namespace {

std::atomic<bool> counts_calls = false;
bool is_old_kernel = false;

void kill_at(int call) {
  test::set_system_call_hook([call, seen = 0](const test::SystemCall& told) mutable {
    if (!told.is_done && counts_calls && ++seen == call) ::kill(::getpid(), SIGKILL);
    return is_old_kernel && !told.is_done && told.name == "renameat2" ? EINVAL : 0;
  });
}

// One in five is replaced.
std::string name_of_step(std::uint64_t step) {
  return is_old_kernel ? "last" : "step-" + std::to_string(step % 5 == 4 ? step - 1 : step);
}

int write_steps(const std::string& folder, std::uint64_t first, std::uint64_t last) {
  Saver saver;
  const std::vector<StateTensor> forms{{"a", "float32", {200, 50}}, {"b", "int64", {}}};
  for (std::uint64_t step = first; step <= last; ++step) {
    const State state(forms, step);
    SaveOptions options;
    options.path = folder + "/" + name_of_step(step);
    options.step = step;
    options.keep = 2;
    options.locks = true;
    if (!begin_save(saver, nullptr, options, state.tensors())) return 3;
    take_all(saver, state);
    saver.start();
    saver.wait_until(TimePoint::max());
    std::printf("%llu\n", static_cast<unsigned long long>(step));
    std::fflush(stdout);
    counts_calls = true;
  }
  return 0;
}

}  // namespace
}  // namespace horo::checkpoint

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  horo::checkpoint::is_old_kernel = std::getenv("TEST_OLD_KERNEL") != nullptr;
  if (const char* at = std::getenv("TEST_KILL_AT")) horo::checkpoint::kill_at(std::atoi(at));
  try {
    return horo::checkpoint::write_steps(argv[1], std::strtoull(argv[2], nullptr, 10),
                                         std::strtoull(argv[3], nullptr, 10));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
