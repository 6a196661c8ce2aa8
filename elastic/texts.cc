#include "elastic/texts.h"

#include <cstddef>

namespace horo {
namespace {

constexpr std::size_t kMostPrinted = 400;
constexpr std::size_t kMostRanksNamed = 16;  // each by itself
constexpr std::size_t kLeastRange = 3;

unsigned char byte_at(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
}

// The bytes of the character that begins at `at`; 0: a control character, or no UTF-8.
std::size_t printable_bytes(std::string_view text, std::size_t at) {
  const unsigned char first = byte_at(text, at);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t size = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (first >= 0xf5) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte_at(text, at + i) & 0xc0) != 0x80) return 0;
  }
  return first == 0xc2 && byte_at(text, at + 1) < 0xa0 ? 0 : size;  // U+0080 to U+009F are control characters
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    if (shown.size() >= kMostPrinted) return shown + "...";
    if (const std::size_t size = printable_bytes(text, at); size > 0) {
      shown += text.substr(at, size);
      at += size;
    } else {
      const unsigned char value = byte_at(text, at++);
      shown += {'\\', 'x', kDigits[value / 16], kDigits[value % 16]};
    }
  }
  return shown;
}

std::string ranks_text(const std::vector<MemberId>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0, next = 0; i < ranks.size(); i = next) {
    next = i + 1;
    while (next < ranks.size() && ranks[next] == ranks[next - 1] + 1) ++next;
    if (ranks.size() <= kMostRanksNamed || next - i < kLeastRange) next = i + 1;
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    if (next - i > 1) text += " to " + std::to_string(ranks[next - 1]);
  }
  return text;
}

std::string duration_text(std::chrono::milliseconds duration) {
  const long long ms = duration.count();
  if (ms < 1000) return std::to_string(ms) + " ms";
  const long long tenths = ms / 100;
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10)) + " s";
}

}  // namespace horo
