#include "tools/horo/run/remedies.h"

#include <sys/resource.h>

#include <cerrno>
#include <system_error>

namespace horo::tools {

namespace {

// Twice the present limit: how many descriptors a job needs is not known where they run out.
std::string descriptors_text() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "Raise the limit of descriptors: ulimit -n";
  const std::string twice = std::to_string(2 * limit.rlim_cur);
  return "This process may open " + std::to_string(limit.rlim_cur) +
         " descriptors, and each rank needs about 8 here: raise the limit with ulimit -n " + twice +
         (limit.rlim_max >= 2 * limit.rlim_cur ? ""
                                               : " (the hard limit, " + std::to_string(limit.rlim_max) +
                                                     ", is set by limits.conf, systemd or the container)");
}

}  // namespace

std::string text_with_remedy(const std::exception& error) {
  std::string text = error.what();
  const auto* failed = dynamic_cast<const std::system_error*>(&error);
  switch (failed == nullptr ? 0 : failed->code().value()) {
    case EMFILE:
      return text + ". " + descriptors_text();
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
