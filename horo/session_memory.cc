#include "horo/session_memory.h"

#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "horo/base/forked.h"

namespace horo {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 48;  // more than any machine has

}  // namespace

// The memory is not freed in a forked child, where it may not be mapped.
Allocation allocate_for(Group& group, int rank, std::size_t bytes) {
  const std::string here = "rank " + std::to_string(rank) + ": ";
  if (bytes > kMostBytes) {
    throw std::invalid_argument(here + std::to_string(bytes) + " bytes of memory; expected at most " +
                                std::to_string(kMostBytes));
  }
  try {
    Allocation memory = group.allocate(bytes);
    std::function<void(std::byte*)> give_back = [free = memory.data.get_deleter(),
                                                 made = fork_generation()](auto* data) {
      if (fork_generation() == made) free(data);
    };
    memory.data.get_deleter().swap(give_back);
    return memory;
  } catch (const std::bad_alloc&) {
    throw std::runtime_error(here + "out of memory: there are no " + std::to_string(bytes) + " bytes for a bucket");
  }
}

}  // namespace horo
