#include "elastic/texts.h"

#include <algorithm>
#include <cctype>
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

// Digits of a number of at most nine.
std::size_t number_at(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  return digits <= 9 ? digits : 0;
}

// The place after the first word "rank" or "ranks" that a number follows; the end: there is none.
std::size_t word_before_number(std::string_view text) {
  for (std::size_t at = text.find("rank"); at != std::string_view::npos; at = text.find("rank", at + 1)) {
    const bool is_word = at == 0 || std::isalnum(static_cast<unsigned char>(text[at - 1])) == 0;
    for (const std::string_view word : {"rank ", "ranks "}) {
      if (is_word && text.substr(at).starts_with(word) && number_at(text.substr(at + word.size())) > 0)
        return at + word.size();
    }
  }
  return text.size();
}

// What stands between two numbers of one list, if another one follows.
std::size_t gap_at(std::string_view text) {
  for (const std::string_view gap : {", ", " and ", " to "}) {
    if (text.starts_with(gap) && number_at(text.substr(gap.size())) > 0) return gap.size();
  }
  return 0;
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

std::string at_start(std::string_view text, const std::vector<MemberId>& members) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t word = word_before_number(text);
    shown += text.substr(0, word);
    text.remove_prefix(word);
    for (std::size_t digits = number_at(text); digits > 0; digits = number_at(text)) {
      const std::string_view rest = text.substr(digits);
      const auto rank = static_cast<std::size_t>(std::stoul(std::string(text.substr(0, digits))));
      const bool is_of_epoch = rank < members.size() && !rest.starts_with(" at the start");
      shown += std::to_string(is_of_epoch ? members[rank] : rank);
      text = rest;
      const std::size_t gap = gap_at(text);
      shown += text.substr(0, gap);
      text.remove_prefix(gap);
    }
  }
  return shown;
}

std::string without_subject(std::string_view text, std::size_t rank) {
  constexpr std::string_view kHost = " (host ", kEnded = ") ended by ";
  const std::string name = "rank " + std::to_string(rank);
  if (!text.starts_with(name)) return std::string(text);
  const std::string_view rest = text.substr(name.size());
  if (rest.starts_with(": ")) return std::string(rest.substr(2));
  const std::size_t ended = rest.find(kEnded);
  if (!rest.starts_with(kHost) || ended == std::string_view::npos) return std::string(text);
  std::string host(rest.substr(kHost.size(), ended - kHost.size()));
  host.resize(std::min(host.size(), host.find(", rank ")));
  return "host " + host + ": " + std::string(rest.substr(ended + kEnded.size()));
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
