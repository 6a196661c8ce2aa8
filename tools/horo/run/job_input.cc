// The input of a stream is read only when the fastest rank has got all of it, so a program that does not read its stdin
// takes one pipe's worth of it. A rank that reads more slowly holds it back; one that never reads does so for some time
// only. No rank gets a part of the input and then its end.
#include "tools/horo/run/job_input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace horo::tools {
namespace {

constexpr std::size_t kDoneBytes = 1 << 20;  // that all ranks have got are freed in pieces of at least this size

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
        input.on_writable(*this);
        input.update();
      }) {}

// Whether the rank has taken bytes out of its pipe.
bool JobInput::Reader::has_begun() const {
  int waiting = 0;
  return ::ioctl(to.get(), FIONREAD, &waiting) != 0 || static_cast<std::size_t>(waiting) < done;
}

void JobInput::Reader::close() {
  writable.stop();
  to.close();
}

JobInput::JobInput(struct ev_loop* loop, int fd, Orders orders, Limits limits)
    : loop_(loop),
      fd_(fd),
      orders_(std::move(orders)),
      limits_(limits),
      kind_(kind_of(fd)),
      own_(kind_ == Kind::kStream ? opened_anew(fd, O_NONBLOCK) : Descriptor()),
      readable_(loop, own_.is_open() ? own_.get() : fd, EV_READ, [this] { read_some(); }),
      patience_(loop, [this] { on_patience(); }) {}

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
  if (got < 0) {
    is_failed_ = true;
    orders_.fail(std::string("cannot read the standard input: ") + std::strerror(errno));
    return update();
  }
  is_at_end_ = got == 0;
  if (got > 0) kept_.append(bytes.data(), static_cast<std::size_t>(got));
  for (Reader& reader : readers_) {
    if (reader.is_served()) write_some(reader);
  }
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

// The pipe of a rank that was given up is full until the rank reads, or ends.
void JobInput::on_writable(Reader& reader) {
  if (!reader.is_given_up) return write_some(reader);
  pollfd state{reader.to.get(), POLLOUT, 0};
  if (::poll(&state, 1, 0) == 1 && (state.revents & POLLERR) != 0) return reader.close();
  reader.writable.stop();
  is_failed_ = true;
  orders_.fail("rank " + std::to_string(reader.rank) + " begins to read its standard input too late: the other ranks " +
               "have read " + std::to_string(end() >> 20) + " MiB of it, and " +
               std::to_string(limits_.kept_bytes >> 20) + " MiB are kept");
}

bool JobInput::is_behind(const Reader& reader) const {
  return !is_at_end_ && end() - reader.done >= limits_.kept_bytes;
}

void JobInput::on_patience() {
  for (Reader& reader : readers_) {
    if (!reader.is_served() || !is_behind(reader)) continue;
    const std::string rank = "rank " + std::to_string(reader.rank);
    if (!reader.has_begun()) {
      reader.is_given_up = true;
      orders_.say(rank + " does not read its standard input: the other ranks wait for it no longer");
    } else if (reader.done == reader.done_then && !std::exchange(reader.is_told, true)) {
      orders_.say(rank + " has not read on in its standard input, and the other ranks wait for it: a rank that needs " +
                  "no more has to close it");
    }
    reader.done_then = reader.done;
  }
  update();
}

void JobInput::update() {
  std::size_t least = end(), most = begin_;
  bool is_one_served = false, is_one_behind = false;
  for (Reader& reader : readers_) {
    if (!reader.is_served()) continue;
    is_one_served = true;
    is_one_behind = is_one_behind || is_behind(reader);
    least = std::min(least, reader.done);
    most = std::max(most, reader.done);
    if (reader.done < end()) {
      reader.writable.start();
    } else {
      reader.writable.stop();
    }
  }
  if (!is_one_behind) {
    patience_.stop();
  } else if (!patience_.is_set()) {
    patience_.set(limits_.begin_s);
  }
  if (least - begin_ >= std::max(kDoneBytes, (end() - least) / 4)) {
    kept_.erase(0, least - begin_);
    begin_ = least;
  }
  if (!is_at_end_ && !is_failed_ && is_one_served && !is_one_behind && most == end()) {
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
