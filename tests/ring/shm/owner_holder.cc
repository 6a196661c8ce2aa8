// owner_holder FILE kill|leave: holds an owner word until the process is killed, or releases it and exits. FILE is an
// inherited descriptor of shared memory that begins with the word. Prints "held" and, after the release, "left".

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "horo/base/owner.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* at = ::mmap(nullptr, sizeof(horo::OwnerWord), PROT_READ | PROT_WRITE, MAP_SHARED, std::atoi(argv[1]), 0);
  if (at == MAP_FAILED) return 3;
  std::optional<horo::OwnerHold> hold(std::in_place, *static_cast<horo::OwnerWord*>(at));
  std::puts("held"), std::fflush(stdout);
  if (std::string(argv[2]) == "kill") ::pause();
  hold.reset();
  std::puts("left"), std::fflush(stdout);
  return 0;
}
