// Log lines on stderr: "[horo 12:00:01.123 rank 2] warning: text". Level by HORO_LOG_LEVEL (trace, debug, info,
// warning, error, off; default warning).
#pragma once

#include <string_view>

namespace horo {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError };

// Any thread.
void log(LogLevel level, std::string_view text) noexcept;
inline void log_debug(std::string_view text) noexcept {
  log(LogLevel::kDebug, text);
}
inline void log_info(std::string_view text) noexcept {
  log(LogLevel::kInfo, text);
}
inline void log_warning(std::string_view text) noexcept {
  log(LogLevel::kWarning, text);
}
inline void log_error(std::string_view text) noexcept {
  log(LogLevel::kError, text);
}

// Shown in every later line of this process. Any thread.
void set_log_rank(int rank) noexcept;

}  // namespace horo
