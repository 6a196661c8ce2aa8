#include "tools/horo/machine/python_folders.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace horo::tools {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders_in(const char* variable) {
  const char* const text = std::getenv(variable);
  std::istringstream words(text == nullptr ? "" : text);
  std::vector<fs::path> folders;
  for (std::string folder; std::getline(words, folder, ':');) {
    if (!folder.empty()) folders.emplace_back(folder);
  }
  return folders;
}

}  // namespace

std::vector<fs::path> site_packages() {
  std::error_code error;
  std::vector<fs::path> prefixes = {fs::read_symlink("/proc/self/exe", error).parent_path().parent_path()};
  if (const char* venv = std::getenv("VIRTUAL_ENV")) prefixes.emplace_back(venv);
  for (const fs::path& folder : folders_in("PATH")) {
    if (fs::exists(folder / "python3", error)) prefixes.push_back(folder.parent_path());
  }
  prefixes.insert(prefixes.end(), {"/usr/local", "/usr"});
  std::vector<fs::path> found = folders_in("PYTHONPATH");
  for (const fs::path& prefix : prefixes) {
    for (const auto& entry : fs::directory_iterator(prefix / "lib", error)) {
      if (!entry.path().filename().string().starts_with("python3")) continue;
      for (const char* name : {"site-packages", "dist-packages"}) {
        const fs::path folder = entry.path() / name;
        const bool is_new = std::find(found.begin(), found.end(), folder) == found.end();
        if (is_new && fs::is_directory(folder, error)) found.push_back(folder);
      }
    }
  }
  return found;
}

std::string installed_cuda_plugin() {
  if (const char* const library = std::getenv("HORO_CUDA_LIBRARY")) return library;
  std::error_code error;
  for (const fs::path& folder : site_packages()) {
    const fs::path file = folder / "horo/libhoro_cuda.so";
    if (fs::exists(file, error)) return file.string();
  }
  return {};
}

}  // namespace horo::tools
