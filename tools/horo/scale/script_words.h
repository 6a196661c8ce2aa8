// The user's command, for a working folder of its own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace horo::tools {

// Words that name a file or folder by a path from `folder`, where the user is, become absolute: "train.py",
// "configs/a.yaml", and what stands behind the "=" of "--data=data/". A word without "." and "/" stays as it is: it may
// be a name of something else.
std::vector<std::string> absolute_words(const std::vector<std::string>& words, const std::filesystem::path& folder);

}  // namespace horo::tools
