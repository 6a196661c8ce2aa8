// Tables of words and numbers for a terminal.
#pragma once

#include <string>
#include <vector>

namespace horo::tools {

using Rows = std::vector<std::vector<std::string>>;

// Columns of equal width, two spaces apart; numbers to the right, words (is_word, by column) to the left. The last
// column is not filled. Each line ends with a newline.
std::string table_of(const Rows& rows, const std::string& indent, const std::vector<bool>& is_word);

// "12,345": without decimals; 0 for what is below.
std::string grouped(double value);

}  // namespace horo::tools
