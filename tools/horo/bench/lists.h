// Parsers of lists and names on a command line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "horo/base/types.h"

namespace horo::tools {

// Splits "a,b". Throws std::invalid_argument with the option's name for a word that is not in `known`, a repeated word,
// or an empty list.
std::vector<std::string> words_of(const std::string& option, const std::string& text,
                                  const std::vector<std::string>& known);

// Parses "8,1K,64K,1M,2G" into bytes; 1K is 1024. Throws std::invalid_argument.
std::vector<std::size_t> sizes_of(const std::string& option, const std::string& text);

// Parses "2", "2,4" or "2..8"; each number is at most `most`. Throws std::invalid_argument.
constexpr int kMostRanksStarted = 1024;
std::vector<int> worlds_of(const std::string& text, int most = kMostRanksStarted);

// The type or collective of that name. Throws std::invalid_argument naming the option.
DType dtype_of(const std::string& option, const std::string& word);
CollectiveKind kind_of(const std::string& option, const std::string& word);

// The names of all types but bool, and of the collectives that move data among all ranks.
std::vector<std::string> words_for_dtype();
std::vector<std::string> words_for_collective();

// The inverse of sizes_of(): "64K" for 65536.
std::string size_text(std::size_t bytes);

}  // namespace horo::tools
