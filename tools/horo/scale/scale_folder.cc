#include "tools/horo/scale/scale_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "horo/base/output_file.h"
#include "horo/base/say.h"
#include "tools/horo/machine/descriptor.h"
#include "tools/horo/scale/page.h"

namespace horo::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "of_horo_scale";  // a file in runs/: what is beside it may be removed

std::string lines_of(const ScaleJson& values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) text += (i == 0 ? "\n" : ",\n") + values[i].dump();
  return text + "\n]";
}

}  // namespace

std::string written(const ScaleJson& json) {
  std::string text;
  for (const auto& [name, value] : json.items()) {
    const bool is_list = name == "table" || name == "runs" || name == "notes";
    text += (text.empty() ? "{\n" : ",\n") + ScaleJson(name).dump() + ": " + (is_list ? lines_of(value) : value.dump());
  }
  return text + "\n}\n";
}

ScaleFolder::ScaleFolder(const std::string& path) : path_(fs::absolute(path).lexically_normal()) {}

void ScaleFolder::prepare() const {
  std::error_code error;
  const bool is_ours = fs::exists(runs() / kMark, error);
  if (!is_ours && fs::exists(path_, error) && !fs::is_empty(path_, error)) {
    throw std::invalid_argument("--out " + path_.string() + ": expected a new folder, or one of horo scale");
  }
  if (is_ours) fs::remove_all(runs(), error);
  if (!error) fs::create_directories(runs(), error);
  if (error) throw std::invalid_argument("--out " + path_.string() + ": " + error.message());
  std::ofstream(runs() / kMark) << "horo scale removes this folder when it measures again.\n";
}

std::string ScaleFolder::make_run(int ranks, int round) const {
  const fs::path folder = runs() / say("round", round, "_ranks", ranks);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw std::runtime_error(folder.string() + ": " + error.message());
  return folder.string();
}

void ScaleFolder::write(const ScaleJson& json) const {
  write_file("scale.json", written(json));
  write_page(json);
}

void ScaleFolder::write_page(const ScaleJson& json) const {
  write_file("scale.html", page_of(json));
}

ScaleJson ScaleFolder::read() const {
  std::ifstream file(json_file());
  if (!file)
    throw std::invalid_argument("cannot read " + json_file() + "; expected the folder of horo scale run --out");
  ScaleJson json = ScaleJson::parse(file, nullptr, false);
  if (!json.is_object()) throw std::invalid_argument(json_file() + " is no JSON document of horo scale");
  return json;
}

void ScaleFolder::write_file(const std::string& name, const std::string& text) const {
  const std::string path = (path_ / name).string();
  const Descriptor file(open_output_file(AT_FDCWD, path, 0644));
  bool is_written = ::ftruncate(file.get(), 0) == 0;
  for (std::size_t done = 0; is_written && done < text.size();) {
    const ssize_t wrote = ::write(file.get(), text.data() + done, text.size() - done);
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
    is_written = wrote > 0 || errno == EINTR;
  }
  if (!is_written) throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
}

}  // namespace horo::tools
