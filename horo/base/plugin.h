// Plug-ins: libraries beside libhoro.so that are loaded when a session needs them. A plug-in exports one function,
// which returns a table of functions that begins with its version.
#pragma once

#include <cstdint>
#include <string>

namespace horo {

// `chosen`, or, if that is empty, the file beside the library or executable that contains this code.
std::string plugin_path(const std::string& chosen, const char* file);

struct PluginEntry {
  std::string subject;  // of the errors: "CUDA tensors"
  const char* name;     // const Api* name(void)
  std::uint32_t version;
};

// The table of the plug-in, which stays loaded. Throws std::invalid_argument: it cannot be loaded, it has no such
// entry, or its table has another version.
const void* open_plugin(const std::string& path, const PluginEntry& entry);

}  // namespace horo
