#include "tools/horo/run/remedies.h"

#include <cerrno>
#include <system_error>

namespace horo::tools {

std::string text_with_remedy(const std::exception& error) {
  std::string text = error.what();
  const auto* failed = dynamic_cast<const std::system_error*>(&error);
  switch (failed == nullptr ? 0 : failed->code().value()) {
    case EMFILE:
      return text + ". Each rank needs about 8 descriptors here: raise the limit with ulimit -n 4096";
    case ENFILE:
      return text + ". The whole machine has no more descriptors (sysctl fs.file-max)";
    case EAGAIN:
      return text + ". The limit of processes is reached: ulimit -u, or the pids limit of the container";
    case ENOMEM:
      return text + ". The memory limit is reached: ulimit -v, or that of the container";
    default:
      return text;
  }
}

}  // namespace horo::tools
