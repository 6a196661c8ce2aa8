// libhoro_kills.so: libhoro.so for scripts that end themselves at fail points (kill_points.h), and that check memory
// whenever their rank is frozen. HORO_LIBRARY selects it; tools/soaks/survive_torch.py uses it.
#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "horo/base/wire.h"
#include "tests/horo/kill_points.h"

namespace horo {
namespace {

struct Watched {
  std::size_t bytes = 0;
  const char* result = nullptr;               // where the result is at the end; elsewhere if it became a view
  std::uint64_t submitted = 0;                // hash of the memory when it was submitted
  std::map<std::uint64_t, std::uint64_t> at;  // by number of the freeze: the hash then
};
std::mutex watch_mutex;
std::map<const char*, Watched> watched;
std::uint64_t freezes = 0;

// Nothing if the memory is gone: a view of a bucket is replaced in the next epoch, and the bucket is unmapped.
std::optional<std::uint64_t> hash_of(const char* data, std::size_t bytes) {
  std::vector<char> copy(bytes);
  const iovec to{copy.data(), bytes}, from{const_cast<char*>(data), bytes};
  const auto read = ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0);
  if (read != static_cast<ssize_t>(bytes)) return std::nullopt;
  return hash64({copy.data(), bytes}, hash64(""));
}

// When the view of the next epoch has come the lanes have stopped, and no result of the view is delivered yet.
void look(const char* name) noexcept {
  if (std::string_view(name) != "engine.view") return;
  const std::lock_guard lock(watch_mutex);
  ++freezes;
  for (auto& [data, one] : watched) {
    if (const auto hash = hash_of(data, one.bytes)) one.at[freezes] = *hash;
  }
}

__attribute__((constructor)) void begin() {
  const char* rank = std::getenv("HORO_RANK");
  if (rank == nullptr) return;
  at_fail_point = look;
  read_kills(std::atoi(rank));
}

}  // namespace
}  // namespace horo

// The memory is complete and is about to be submitted; watches it until horo_test_end_watch().
extern "C" __attribute__((visibility("default"))) void horo_test_watch(const char* data, std::size_t bytes) {
  const std::lock_guard lock(horo::watch_mutex);
  horo::watched[data] = {bytes, data, horo::hash_of(data, bytes).value_or(0), {}};
}

// What was at `from` when it was submitted is at `to` now.
extern "C" __attribute__((visibility("default"))) void horo_test_moved(const char* from, const char* to) {
  const std::lock_guard lock(horo::watch_mutex);
  if (const auto at = horo::watched.find(from); at != horo::watched.end()) at->second.result = to;
}

// The results are delivered. Returns the number of freezes in between; -1 if in one of them some memory was neither as
// submitted nor a result, or was as submitted while other memory was a result.
extern "C" __attribute__((visibility("default"))) int horo_test_end_watch() {
  const std::lock_guard lock(horo::watch_mutex);
  std::map<std::uint64_t, std::vector<bool>> is_input, is_result;  // by freeze
  for (const auto& [submitted, one] : horo::watched) {
    const auto result = horo::hash_of(one.result, one.bytes);
    for (const auto& [freeze, hash] : one.at) {
      is_input[freeze].push_back(hash == one.submitted);
      is_result[freeze].push_back(!result || hash == *result);
    }
  }
  horo::watched.clear();
  const auto all = [](const std::vector<bool>& some) {
    for (const bool one : some) {
      if (!one) return false;
    }
    return true;
  };
  for (const auto& [freeze, inputs] : is_input) {
    if (!all(inputs) && !all(is_result[freeze])) return -1;
  }
  return static_cast<int>(is_input.size());
}

// See forget_kills().
extern "C" __attribute__((visibility("default"))) void horo_test_forget_kills() {
  horo::forget_kills();
}
