// Lines are written whole, so that ranks never mix inside one. What has no end yet waits here, in bounded memory.
#include "tools/horo/output.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace horo {

std::string LinePrefixer::feed(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    // Only now is it known whether a newline belongs to the carriage return before it.
    if (byte != '\n' && line_.ends_with('\r')) end_line(out);
    line_ += byte;
    if (byte == '\n') {
      end_line(out);
    } else if (line_.size() >= kMaxLineBytes) {
      line_ += '\n';
      end_line(out);
    }
  }
  return out;
}

std::string LinePrefixer::finish() {
  std::string out;
  if (line_.empty()) return out;
  line_ += '\n';
  end_line(out);
  return out;
}

void LinePrefixer::end_line(std::string& out) {
  out += prefix_;
  out += line_;
  line_.clear();
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd, text.data(), text.size());
    if (wrote >= 0) {
      text.remove_prefix(static_cast<std::size_t>(wrote));
    } else if (errno == EAGAIN) {
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace horo
