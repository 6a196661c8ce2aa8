#include "tools/horo/scale/script_words.h"

#include <system_error>

namespace horo::tools {
namespace {

bool names_file(const std::string& word, const std::filesystem::path& folder) {
  if (word.empty() || word.front() == '/' || word.find_first_of("./") == std::string::npos) return false;
  std::error_code none;
  return std::filesystem::exists(folder / word, none);
}

std::string absolute_word(const std::string& word, const std::filesystem::path& folder) {
  if (names_file(word, folder)) return (folder / word).lexically_normal().string();
  const std::size_t equals = word.find('=');
  if (!word.starts_with('-') || equals == std::string::npos) return word;
  const std::string value = word.substr(equals + 1);
  if (!names_file(value, folder)) return word;
  return word.substr(0, equals + 1) + (folder / value).lexically_normal().string();
}

}  // namespace

std::vector<std::string> absolute_words(const std::vector<std::string>& words, const std::filesystem::path& folder) {
  std::vector<std::string> changed;
  for (const std::string& word : words) changed.push_back(absolute_word(word, folder));
  return changed;
}

}  // namespace horo::tools
