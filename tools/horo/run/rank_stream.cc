#include "tools/horo/run/rank_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "horo/base/output_file.h"
#include "tools/horo/run/child.h"

namespace horo::tools {

RankStream::RankStream(struct ev_loop* loop, Descriptor from, Destinations ways)
    : from_(std::move(from)),
      destinations_(std::move(ways)),
      readable_(loop, from_.get(), EV_READ,
                [this] {
                  read_some();
                  if (!is_open()) destinations_.end();
                }),
      lines_([this](std::string_view line) { pass_line(line); }, destinations_.most_bytes) {
  readable_.start();
}

void RankStream::update_reading() {
  if (!is_open()) return;
  if (destinations_.writer->is_full()) {
    readable_.stop();
  } else {
    readable_.start();
  }
}

// As much as a pipe may have.
void RankStream::set_prefix(const std::string& prefix) {
  constexpr int kMostReads = 16;
  for (int reads = 0; reads < kMostReads && is_open() && read_some(); ++reads) {
  }
  destinations_.prefix = prefix;
}

void RankStream::close() {
  while (is_open() && read_some()) {
  }
  if (!is_open()) return;
  readable_.stop();
  from_.close();
  lines_.finish();
}

// A single read() per event, so that ranks with much output share the loop fairly. False: no data at the moment.
bool RankStream::read_some() {
  std::array<char, 64 << 10> bytes;
  const ssize_t got = ::read(from_.get(), bytes.data(), bytes.size());
  if (got > 0) {
    const std::string_view text(bytes.data(), static_cast<std::size_t>(got));
    write_file(text);
    lines_.feed(text);
    update_reading();
    return true;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  readable_.stop();
  from_.close();
  lines_.finish();
  return false;
}

void RankStream::pass_line(std::string_view line) {
  tail_.add(line);
  if (destinations_.take && destinations_.take(line)) return;
  destinations_.writer->write(destinations_.prefix + std::string(line));
}

// A write error (a full disk) ends the file, not the job.
void RankStream::write_file(std::string_view bytes) {
  while (destinations_.file.is_open() && !bytes.empty()) {
    const ssize_t wrote = ::write(destinations_.file.get(), bytes.data(), bytes.size());
    if (wrote >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(wrote));
    } else if (errno != EINTR) {
      const std::string why = std::strerror(errno);
      destinations_.file.close();
      destinations_.writer->write("horo run: " + destinations_.prefix +
                                  "its file in --output-dir is incomplete: " + why + "\n");
    }
  }
}

Descriptor make_rank_file(const std::string& folder, int rank, const char* ending, bool goes_on) {
  const std::string name = "rank." + std::to_string(rank) + ending;
  try {
    const Descriptor opened(open_output_folder(folder));
    Descriptor file(open_output_file(opened.get(), name, 0644));
    const bool is_ready = goes_on ? ::lseek(file.get(), 0, SEEK_END) >= 0 : ::ftruncate(file.get(), 0) == 0;
    if (!is_ready && errno != EINVAL && errno != ESPIPE) throw std::system_error(errno, std::generic_category());
    return file;
  } catch (const std::exception& error) {
    throw StartFailed(1, "--output-dir: " + folder + "/" + name + ": " + error.what());
  }
}

}  // namespace horo::tools
