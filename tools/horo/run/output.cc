// A descriptor that poll() reports as writable accepts PIPE_BUF bytes without blocking, so at most PIPE_BUF bytes are
// written per call.
#include "tools/horo/run/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace horo::tools {
namespace {

bool is_writable(int fd) {
  pollfd ready{fd, POLLOUT, 0};
  return ::poll(&ready, 1, 0) == 1;
}

}  // namespace

void LineSplitter::feed(std::string_view bytes) {
  for (const char byte : bytes) {
    // A carriage return without a newline after it ends the line.
    if (byte != '\n' && line_.ends_with('\r')) end_line();
    line_ += byte;
    if (byte == '\n') {
      end_line();
    } else if (line_.size() >= most_bytes_) {
      line_ += '\n';
      end_line();
    }
  }
}

void LineSplitter::finish() {
  if (line_.empty()) return;
  line_ += '\n';
  end_line();
}

void LineSplitter::end_line() {
  on_line_(line_);
  line_.clear();
}

StreamWriter::StreamWriter(struct ev_loop* loop, int fd, std::function<void()> on_change)
    : fd_(fd), on_change_(std::move(on_change)), writable_(loop, fd, EV_WRITE, [this] { on_writable(); }) {}

void StreamWriter::write(std::string_view text) {
  if (error_ != 0) return;
  queue_ += text;
  write_some();
  if (error_ != 0) on_change_();
}

void StreamWriter::abandon(int error) {
  error_ = error;
  queue_.clear();
  done_ = 0;
  writable_.stop();
}

void StreamWriter::on_writable() {
  const bool was_full = is_full();
  write_some();
  if (error_ != 0 || is_empty() || (was_full && !is_full())) on_change_();
}

void StreamWriter::write_some() {
  while (!is_empty() && is_writable(fd_)) {
    const ssize_t wrote = ::write(fd_, queue_.data() + done_, std::min<std::size_t>(queue_.size() - done_, PIPE_BUF));
    if (wrote >= 0) {
      done_ += static_cast<std::size_t>(wrote);
    } else if (errno != EINTR && errno != EAGAIN) {
      return abandon(errno);
    }
  }
  if (is_empty() || done_ > kFullBytes) {
    queue_.erase(0, done_);
    done_ = 0;
  }
  if (is_empty()) {
    writable_.stop();
  } else {
    writable_.start();
  }
}

}  // namespace horo::tools
