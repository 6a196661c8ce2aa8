// Loads NCCL.
#pragma once

#include <memory>
#include <string>

#include "horo/base/config.h"
#include "ring/nccl/nccl_api.h"

namespace horo {

struct NcclLibrary {
  std::shared_ptr<const NcclApi> api;  // null: `why` has the reason, and the remedy
  int version = 0;                     // 22907 is 2.29.7
  std::string why;
};

// Config::nccl_library; without it the NCCL that this process has loaded, as torch does, or the one that the loader
// finds. It stays loaded. The first call of a process may take a second.
NcclLibrary load_nccl(const Config& config);

// "2.29.7"
std::string nccl_version_text(int version);

}  // namespace horo
