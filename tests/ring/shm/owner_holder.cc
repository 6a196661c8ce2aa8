// Holds an owner word until it is killed, or leaves in good order: owner_holder FILE kill|leave. FILE is an inherited
// descriptor of shared memory, which begins with the word. Prints "held", and "left".

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "ring/shm/owner.h"

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
