#include "horo/base/nearest.h"

#include <algorithm>
#include <cctype>

namespace horo {
namespace {

std::string plain(std::string_view word) {
  std::string text(word);
  for (char& one : text) one = one == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(one)));
  return text;
}

std::size_t edits_between(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> table((a.size() + 1) * width);  // [i * width + j]: between the first i and j letters
  for (std::size_t j = 0; j < width; ++j) table[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t* row = &table[i * width];
    const std::size_t* above = row - width;
    row[0] = i;
    for (std::size_t j = 1; j < width; ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], table[(i - 2) * width + j - 2] + 1);
    }
  }
  return table.back();
}

constexpr std::size_t kLongestWord = 64;

}  // namespace

std::optional<std::string> nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > kLongestWord) return std::nullopt;
  const std::string own = plain(word);
  const std::string* nearest = nullptr;
  std::size_t fewest = own.size() / 3 + 2;
  for (const std::string& candidate : candidates) {
    const std::size_t edits = edits_between(own, plain(candidate));
    if (edits >= fewest || edits >= candidate.size()) continue;
    nearest = &candidate;
    fewest = edits;
  }
  return nearest == nullptr ? std::nullopt : std::optional(*nearest);
}

std::string nearest_text(std::string_view word, const std::vector<std::string>& candidates) {
  const auto nearest = nearest_word(word, candidates);
  return nearest ? "; did you mean " + *nearest + "?" : "";
}

std::vector<std::string> words_in(std::string_view choices) {
  std::vector<std::string> words;
  while (!choices.empty()) {
    const std::size_t comma = choices.find(", "), last = choices.find(" or ");
    const std::size_t end = std::min({comma, last, choices.size()});
    words.emplace_back(choices.substr(0, end));
    choices.remove_prefix(std::min(choices.size(), end + (comma < last ? 2 : 4)));
  }
  return words;
}

}  // namespace horo
