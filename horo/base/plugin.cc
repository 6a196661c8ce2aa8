#include "horo/base/plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>

#include "horo/base/say.h"

namespace horo {

std::string plugin_path(const std::string& chosen, const char* file) {
  if (!chosen.empty()) return chosen;
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&plugin_path), &here) == 0 || here.dli_fname == nullptr) return file;
  return (std::filesystem::path(here.dli_fname).parent_path() / file).string();
}

const void* open_plugin(const std::string& path, const PluginEntry& entry) {
  const auto refuse = [&](const std::string& why) { throw std::invalid_argument(say(entry.subject, ": ", why)); };
  void* const plugin = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (plugin == nullptr) {
    const char* why = ::dlerror();
    refuse(say("the plug-in cannot be loaded: ", why == nullptr ? "no reason is known" : why));
  }
  using Get = const void* (*)();
  const auto get = reinterpret_cast<Get>(::dlsym(plugin, entry.name));
  if (get == nullptr) refuse(say(path, " is no plug-in of horo: it has no ", entry.name, "()"));
  const void* const table = get();
  if (const auto version = *static_cast<const std::uint32_t*>(table); version != entry.version) {
    refuse(say(path, " is of another version of horo: its table has version ", version, ", expected ", entry.version));
  }
  return table;
}

}  // namespace horo
