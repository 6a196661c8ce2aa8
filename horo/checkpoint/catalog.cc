#include "horo/checkpoint/catalog.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include "horo/base/json_text.h"
#include "horo/base/say.h"
#include "horo/checkpoint/folder.h"
#include "horo/checkpoint/reader.h"

namespace horo::checkpoint {
namespace {

bool has_file(const OpenFolder& parent, const std::string& path) {
  struct stat status {};
  return ::fstatat(parent.fd.get(), path.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

Listed listed(const OpenFolder& parent, const std::string& name) {
  Listed one{parent.path_of(name), step_in(name), std::nullopt, ""};
  try {
    const Checkpoint checkpoint(parent, name);
    one.step = checkpoint.index().step;
    one.bytes = checkpoint.bytes();
  } catch (const std::exception& error) {
    one.error = error.what();
  }
  return one;
}

std::string number_or_null(const std::optional<std::uint64_t>& number) {
  return number ? std::to_string(*number) : "null";
}

struct Numbered {
  std::uint64_t step;
  std::string name;
};

}  // namespace

std::vector<Listed> list(const std::string& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0 && errno == ENOENT) return {};
  const OpenFolder parent = open_folder(folder, true);
  std::vector<Listed> all;
  for (const std::string& name : names_in(parent)) {
    if (!name.starts_with('.') && (step_in(name) || has_file(parent, say(name, "/", kIndexFile))))
      all.push_back(listed(parent, name));
  }
  std::ranges::sort(all, std::greater{}, [](const Listed& one) { return std::pair(one.step, one.path); });
  return all;
}

std::string json_of(const std::vector<Listed>& all) {
  std::string text = "[";
  for (const Listed& one : all) {
    text += say(text.size() == 1 ? "" : ",\n", "{\"path\": ", json_quoted(one.path),
                ", \"step\": ", number_or_null(one.step), ", \"bytes\": ", number_or_null(one.bytes),
                ", \"error\": ", one.error.empty() ? "null" : json_quoted(one.error), "}");
  }
  return text + "]";
}

void keep_newest(const OpenFolder& parent, const std::string& name, std::uint32_t keep) noexcept {
  try {
    const std::optional<std::uint64_t> step = step_in(name);
    if (!step || keep == 0) return;
    std::vector<Numbered> older;
    for (const std::string& other : names_in(parent)) {
      const std::optional<std::uint64_t> number = step_in(other);
      if (number && *number <= *step && other != name && has_file(parent, say(other, "/", kIndexFile)) &&
          is_checkpoint(parent, other))
        older.push_back({*number, other});
    }
    std::ranges::sort(older, std::greater{}, &Numbered::step);
    std::uint32_t kept = 1;
    std::vector<std::string> removed;
    for (const Numbered& one : older) {
      if (kept < keep) {
        if (listed(parent, one.name).error.empty()) ++kept;
        continue;
      }
      removed.push_back(removed_name_for(one.name));
      rename_in(parent, one.name, removed.back());
    }
    if (removed.empty()) return;
    sync_folder(parent);  // after a power cut no checkpoint that is half removed has its name
    for (const std::string& folder : removed) remove_folder(parent, folder);
  } catch (const std::exception&) {  // they stay
  }
}

}  // namespace horo::checkpoint
