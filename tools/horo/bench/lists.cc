#include "tools/horo/bench/lists.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string_view>

#include "horo/base/nearest.h"

namespace horo::tools {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 40;
constexpr std::string_view kUnits = "KMG";

[[noreturn]] void refuse_list(const std::string& option, const std::string& text, const std::string& expected) {
  throw std::invalid_argument(option + " " + text + ": expected " + expected);
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> words{""};
  for (const char letter : text) {
    if (letter == ',') {
      words.emplace_back();
    } else {
      words.back().push_back(letter);
    }
  }
  return words;
}

template <class Number>
const char* read_digits(const std::string& word, Number& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() ? end : nullptr;
}

int rank_count(const std::string& word, const std::string& whole, int most) {
  int ranks = 0;
  const bool is_number = read_digits(word, ranks) == word.data() + word.size();
  if (is_number && ranks >= 1 && ranks <= most) return ranks;
  refuse_list("--ranks", whole, "4, 2,4 or 2..8, each from 1 to " + std::to_string(most));
}

}  // namespace

std::vector<std::string> words_of(const std::string& option, const std::string& text,
                                  const std::vector<std::string>& known) {
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  std::vector<std::string> words = split_list(text);
  for (auto word = words.begin(); word != words.end(); ++word) {
    const bool is_known = std::find(known.begin(), known.end(), *word) != known.end();
    const auto nearest = is_known ? std::nullopt : nearest_word(*word, known);
    if (nearest) throw std::invalid_argument(option + ": " + *word + " is unknown; did you mean " + *nearest + "?");
    if (!is_known || std::find(words.begin(), word, *word) != word) {
      refuse_list(option, text, "some of " + names + ", each once, with commas between them");
    }
  }
  return words;
}

std::vector<std::size_t> sizes_of(const std::string& option, const std::string& text) {
  std::vector<std::size_t> sizes;
  for (const std::string& word : split_list(text)) {
    std::size_t size = 0;
    const char* end = read_digits(word, size);
    const std::string unit = end == nullptr ? "?" : std::string(end, word.data() + word.size());
    const std::size_t power = unit.size() == 1 ? kUnits.find(unit) : std::string_view::npos;
    if (power != std::string_view::npos && size <= kMostBytes) size <<= 10 * (power + 1);
    if ((!unit.empty() && power == std::string_view::npos) || size == 0 || size > kMostBytes) {
      refuse_list(option, text, "sizes such as 8,1K,64M, from 1 byte to 1024G");
    }
    sizes.push_back(size);
  }
  return sizes;
}

std::vector<int> worlds_of(const std::string& text, int most) {
  std::vector<int> worlds;
  if (const std::size_t dots = text.find(".."); dots != std::string::npos) {
    const int last = rank_count(text.substr(dots + 2), text, most);
    for (int n = rank_count(text.substr(0, dots), text, most); n <= last; ++n) worlds.push_back(n);
  } else {
    for (const std::string& word : split_list(text)) worlds.push_back(rank_count(word, text, most));
  }
  if (worlds.empty()) refuse_list("--ranks", text, "4, 2,4 or 2..8");
  return worlds;
}

std::vector<std::string> words_for_dtype() {
  std::vector<std::string> words;
  for (int i = 0; i < 256; ++i) {
    if (const auto dtype = dtype_from(i); dtype && *dtype != DType::kBool) words.emplace_back(name_of(*dtype));
  }
  return words;
}

std::vector<std::string> words_for_collective() {
  return {"all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "gather", "scatter", "all_to_all"};
}

std::string size_text(std::size_t bytes) {
  std::string unit;
  for (const char letter : kUnits) {
    if (bytes % 1024 != 0 || bytes == 0) break;
    bytes /= 1024;
    unit = letter;
  }
  return std::to_string(bytes) + unit;
}

DType dtype_of(const std::string& option, const std::string& word) {
  for (int i = 0; i < 256; ++i) {
    if (const auto dtype = dtype_from(i); dtype && name_of(*dtype) == word) return *dtype;
  }
  throw std::invalid_argument(option + " " + word + ": no such type");
}

CollectiveKind kind_of(const std::string& option, const std::string& word) {
  for (int i = 0; i < 256; ++i) {
    if (const auto kind = collective_kind_from(i); kind && name_of(*kind) == word) return *kind;
  }
  throw std::invalid_argument(option + " " + word + ": no such collective");
}

}  // namespace horo::tools
