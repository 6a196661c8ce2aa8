#include "ring/nccl/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include "horo/base/library_functions.h"
#include "horo/base/say.h"

namespace horo {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";
// Before, a call of a non-blocking communicator that is in progress is known to its thread, not to the communicator: a
// thread that goes on with another communicator crashes, and threads cannot abort communicators beside each other.
constexpr int kLeastVersion = 22'703;

// Of the functions the first that is missing; null: none.
const char* find_functions(void* library, NcclApi& api) {
  LibraryFunctions functions(library);
  functions.find(api.get_version, "ncclGetVersion");
  functions.find(api.get_unique_id, "ncclGetUniqueId");
  functions.find(api.comm_init, "ncclCommInitRankConfig");
  functions.find(api.comm_finalize, "ncclCommFinalize");
  functions.find(api.comm_abort, "ncclCommAbort");
  functions.find(api.comm_error, "ncclCommGetAsyncError");
  functions.find(api.error_text, "ncclGetErrorString");
  functions.find(api.last_error, "ncclGetLastError");
  functions.find(api.group_start, "ncclGroupStart");
  functions.find(api.group_end, "ncclGroupEnd");
  functions.find(api.all_reduce, "ncclAllReduce");
  functions.find(api.reduce, "ncclReduce");
  functions.find(api.reduce_scatter, "ncclReduceScatter");
  functions.find(api.all_gather, "ncclAllGather");
  functions.find(api.broadcast, "ncclBroadcast");
  functions.find(api.send, "ncclSend");
  functions.find(api.receive, "ncclRecv");
  return functions.missing();
}

// The version is looked at first: an old NCCL lacks functions.
std::string what_is_missing(void* library, NcclApi& api, int& version) {
  const char* const missing = find_functions(library, api);
  if (api.get_version == nullptr || api.get_version(&version) != kNcclSuccess) return "it does not tell its version";
  if (version < kLeastVersion)
    return say("it is NCCL ", nccl_version_text(version), ", and horo needs 2.27.3 or newer");
  if (const char* blocks = std::getenv("NCCL_COMM_BLOCKING"); blocks != nullptr && std::string_view(blocks) == "1")
    return "NCCL_COMM_BLOCKING=1 makes its calls wait for other ranks without a limit: unset it";
  return missing == nullptr ? "" : say("it has no function ", missing);
}

void* open_library(const std::string& path) {
  void* const loaded = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  return loaded != nullptr ? loaded : ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

NcclLibrary load_nccl(const Config& config) {
  NcclLibrary found;
  const std::string path = config.nccl_library.empty() ? kLibrary : config.nccl_library;
  void* const library = open_library(path);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    found.why = say("NCCL cannot be loaded (", reason == nullptr ? "no reason" : reason,
                    "): install it (pip: nvidia-nccl-cu13), or name its libnccl.so.2 in HORO_NCCL_LIBRARY");
    return found;
  }
  const auto api = std::make_shared<NcclApi>();
  const std::string missing = what_is_missing(library, *api, found.version);
  if (missing.empty()) {
    found.api = api;
  } else {
    found.why = say(path, " cannot be used: ", missing);
  }
  return found;
}

std::string nccl_version_text(int version) {
  return say(version / 10'000, ".", version % 10'000 / 100, ".", version % 100);
}

}  // namespace horo
