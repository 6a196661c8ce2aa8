// Where Python finds the package horo and its libraries.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace horo::tools {

// The folders from which the Python interpreters of this environment import: those of PYTHONPATH, then that of this
// executable.
std::vector<std::filesystem::path> site_packages();

// HORO_CUDA_LIBRARY, or libhoro_cuda.so of the package; empty if there is neither: then the plug-in is looked for
// beside the executable.
std::string installed_cuda_plugin();

}  // namespace horo::tools
