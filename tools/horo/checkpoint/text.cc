#include "tools/horo/checkpoint/text.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <utility>

#include "horo/base/say.h"

namespace horo::tools {
namespace {

constexpr std::chrono::milliseconds kBetweenLines{100};
constexpr std::size_t kBarWidth = 30;

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  double number = static_cast<double>(bytes);
  const char* unit = "bytes";
  for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
    if (number < 1024) break;
    number /= 1024;
    unit = larger;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g %s", number, unit);
  return text.data();
}

CheckpointProgress::CheckpointProgress(std::string what, std::uint64_t total)
    : what_(std::move(what)), total_(total), is_terminal_(::isatty(STDERR_FILENO) == 1), begin_(Clock::now()) {}

CheckpointProgress::~CheckpointProgress() {
  if (is_terminal_) std::cerr << "\r\033[K" << std::flush;
}

void CheckpointProgress::add(std::uint64_t bytes) {
  done_ += bytes;
  const TimePoint now = Clock::now();
  if (!is_terminal_ || (now - shown_ < kBetweenLines && done_ < total_)) return;
  shown_ = now;
  const double share = total_ == 0 ? 1 : static_cast<double>(done_) / static_cast<double>(total_);
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const std::size_t full = static_cast<std::size_t>(share * static_cast<double>(kBarWidth));
  const auto rate = static_cast<std::uint64_t>(seconds > 0 ? static_cast<double>(done_) / seconds : 0);
  std::cerr << say("\r\033[K", what_, " [", std::string(full, '#'), std::string(kBarWidth - full, '.'), "] ",
                   static_cast<int>(share * 100), " %, ", bytes_text(rate), "/s")
            << std::flush;
}

}  // namespace horo::tools
