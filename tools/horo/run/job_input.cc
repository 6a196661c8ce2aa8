// The input of a stream is read only when the fastest rank has got all of it, so a program that does not read its stdin
// takes one pipe's worth of it.
#include "tools/horo/run/job_input.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace horo::tools {
namespace {

constexpr std::size_t kDoneBytes = 1 << 20;  // that all ranks have got are freed in pieces of this size

Descriptor opened_anew(int fd, int flags) {
  return Descriptor(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC | flags));
}

bool is_readable(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_WRONLY;
}

}  // namespace

JobInput::Reader::Reader(JobInput& input, int rank, Descriptor pipe)
    : rank(rank), to(std::move(pipe)), writable(input.loop_, to.get(), EV_WRITE, [this, &input] {
        input.write_some(*this);
        input.update();
      }) {}

void JobInput::Reader::close() {
  writable.stop();
  to.close();
}

JobInput::JobInput(struct ev_loop* loop, int fd, std::function<void(const std::string&)> say)
    : loop_(loop),
      fd_(fd),
      say_(std::move(say)),
      kind_(kind_of(fd)),
      own_(kind_ == Kind::kStream ? opened_anew(fd, O_NONBLOCK) : Descriptor()),
      readable_(loop, own_.is_open() ? own_.get() : fd, EV_READ, [this] { read_some(); }) {}

JobInput::Kind JobInput::kind_of(int fd) {
  struct stat status {};
  if (!is_readable(fd) || ::fstat(fd, &status) != 0 || ::isatty(fd) == 1) return Kind::kNone;
  if (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)) return Kind::kStream;
  if (!opened_anew(fd, 0).is_open()) return Kind::kStream;
  return Kind::kFile;
}

Descriptor JobInput::add_rank(int rank) {
  if (kind_ == Kind::kNone) return {};
  if (kind_ == Kind::kFile) {
    Descriptor file = opened_anew(fd_, 0);
    const off_t position = ::lseek(fd_, 0, SEEK_CUR);
    if (file.is_open() && position > 0) ::lseek(file.get(), position, SEEK_SET);
    return file;
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
  Descriptor read(ends[0]), write(ends[1]);
  ::fcntl(write.get(), F_SETFL, O_NONBLOCK);
  readers_.emplace_back(*this, rank, std::move(write));
  update();
  return read;
}

void JobInput::read_some() {
  std::array<char, 64 << 10> bytes;
  const ssize_t got = ::read(own_.is_open() ? own_.get() : fd_, bytes.data(), bytes.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  is_at_end_ = got <= 0;
  if (got > 0) kept_.append(bytes.data(), static_cast<std::size_t>(got));
  for (Reader& reader : readers_) write_some(reader);
  update();
}

// A rank that has ended, or has closed its stdin, needs no more.
void JobInput::write_some(Reader& reader) {
  while (reader.is_open() && reader.done < end()) {
    const ssize_t wrote = ::write(reader.to.get(), kept_.data() + (reader.done - begin_), end() - reader.done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) return;
    if (wrote < 0) return reader.close();
    reader.done += static_cast<std::size_t>(wrote);
  }
  if (is_at_end_) reader.close();
}

void JobInput::update() {
  for (Reader& reader : readers_) {
    if (!reader.is_open() || end() - reader.done <= kMostKeptBytes) continue;
    say_("rank " + std::to_string(reader.rank) + " does not read its standard input, and gets no more of it than the " +
         std::to_string(kMostKeptBytes >> 20) + " MiB that are kept for it");
    reader.close();
  }
  std::size_t least = end(), most = begin_;
  bool is_one_open = false;
  for (Reader& reader : readers_) {
    if (!reader.is_open()) continue;
    is_one_open = true;
    least = std::min(least, reader.done);
    most = std::max(most, reader.done);
    if (reader.done < end()) {
      reader.writable.start();
    } else {
      reader.writable.stop();
    }
  }
  if (least - begin_ >= kDoneBytes) {
    kept_.erase(0, least - begin_);
    begin_ = least;
  }
  if (!is_at_end_ && is_one_open && most == end()) {
    readable_.start();
  } else {
    readable_.stop();
  }
}

bool has_input(int fd) {
  struct stat status {};
  if (!is_readable(fd) || ::fstat(fd, &status) != 0) return false;
  if (S_ISREG(status.st_mode)) return ::lseek(fd, 0, SEEK_CUR) < status.st_size;
  int bytes = 0;
  const bool is_stream = S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode);
  return is_stream && ::ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

}  // namespace horo::tools
