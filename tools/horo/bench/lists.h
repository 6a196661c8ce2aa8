// The lists and words of a command line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "horo/base/types.h"

namespace horo::tools {

// "a,b" as a and b. Throws std::invalid_argument, naming the option, for a word that is not among `known`, one that is
// there twice, or none at all.
std::vector<std::string> words_of(const std::string& option, const std::string& text,
                                  const std::vector<std::string>& known);

// "8,1K,64K,1M,2G" in bytes, 1K being 1024. Throws std::invalid_argument.
std::vector<std::size_t> sizes_of(const std::string& option, const std::string& text);

// "2", "2,4" or "2..8", each at most `most`. Throws std::invalid_argument.
constexpr int kMostRanksStarted = 1024;
std::vector<int> worlds_of(const std::string& text, int most = kMostRanksStarted);

// The type or collective of that name. Throws std::invalid_argument naming the option.
DType dtype_of(const std::string& option, const std::string& word);
CollectiveKind kind_of(const std::string& option, const std::string& word);

// The names of all types but bool, and of the collectives that move data among all ranks.
std::vector<std::string> words_for_dtype();
std::vector<std::string> words_for_collective();

// The other way: 65536 as "64K".
std::string say_size(std::size_t bytes);

}  // namespace horo::tools
