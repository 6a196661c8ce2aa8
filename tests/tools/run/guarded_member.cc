// guarded_member kill|leave|exit|exec|thread BYTES: a member of an elastic job without an engine. It holds memory, says
// that it has installed epoch 0, and then waits, ends its link to the guard, exits, executes another program, or waits
// for a message at which the thread of its link ends.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "elastic/guard_link.h"

namespace {

void hold_memory(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::exit(3);
  ::madvise(memory, bytes, MADV_NOHUGEPAGE);
  for (std::size_t at = 0; at < bytes; at += 4'096) static_cast<volatile char*>(memory)[at] = 1;
}

}  // namespace

int main(int argc, char** argv) {
  const char* fd = std::getenv("HORO_GUARD_FD");
  if (argc != 3 || fd == nullptr) return 2;
  const std::string mode = argv[1];
  if (const std::size_t bytes = std::stoul(argv[2]); bytes > 0) hold_memory(bytes);
  auto link = std::make_unique<horo::GuardLink>(std::atoi(fd), [] { ::syscall(SYS_exit, 0); });
  link->send(horo::Installed{0});
  if (mode == "leave") link.reset();
  if (mode == "exit") ::_exit(0);
  if (mode == "exec") ::execlp("sleep", "sleep", "60", nullptr);
  while (true) ::pause();
}
