// One spdlog logger for the process, made at the first line. spdlog and fmt are used header-only, so that nothing more
// is linked; with hidden visibility a training script may bring its own copies of both.
#define SPDLOG_FMT_EXTERNAL 1  // as Debian's spdlog says itself
#define FMT_HEADER_ONLY
#include "horo/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "horo/base/horovod_variables.h"

namespace horo {
namespace {

std::atomic<int>& log_rank() noexcept {
  static constinit std::atomic<int> rank{-1};  // orders nothing: a line may show the previous rank
  return rank;
}

// " rank 2" once the rank is known.
class RankFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg&, const std::tm&, spdlog::memory_buf_t& out) override {
    const int rank = log_rank().load(std::memory_order_relaxed);
    if (rank < 0) return;
    const std::string text = " rank " + std::to_string(rank);
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<RankFlag>(); }
};

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

void set_level_of_horovod(spdlog::logger& logger) {
  const char* wanted = std::getenv("HOROVOD_LOG_LEVEL");
  if (wanted == nullptr || *wanted == '\0') return;
  if (const auto level = log_level_of_horovod(wanted)) return logger.set_level(spdlog::level::from_str(*level));
  logger.warn("HOROVOD_LOG_LEVEL=\"" + std::string(wanted) +
              "\": expected TRACE, DEBUG, INFO, WARNING, ERROR or FATAL; using warning");
}

void set_level_from_environment(spdlog::logger& logger) {
  logger.set_level(spdlog::level::warn);
  const char* wanted = std::getenv("HORO_LOG_LEVEL");
  if (wanted == nullptr) return set_level_of_horovod(logger);
  const std::string_view name = wanted;
  for (const char* known : {"trace", "debug", "info", "warning", "error", "off"}) {
    if (name != known) continue;
    logger.set_level(spdlog::level::from_str(known));
    return;
  }
  logger.warn("HORO_LOG_LEVEL=\"" + std::string(name) +
              "\": expected trace, debug, info, warning, error or off; using warning");
}

spdlog::logger* make_logger() {
  auto logger = std::make_unique<spdlog::logger>("horo", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<RankFlag>('*').set_pattern("[horo %H:%M:%S.%e%*] %l: %v");
  logger->set_formatter(std::move(formatter));
  set_level_from_environment(*logger);
  return logger.release();
}

// Lives until the process ends: threads may still log while static objects are being destroyed.
spdlog::logger& logger() {
  static spdlog::logger* const instance = make_logger();
  return *instance;
}

}  // namespace

void log(LogLevel level, std::string_view text) noexcept {
  try {
    logger().log(spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
  } catch (...) {  // no memory for a log line: the line is lost, the caller is not
  }
}

void set_log_rank(int rank) noexcept {
  log_rank().store(rank, std::memory_order_relaxed);
}

}  // namespace horo
