// The folder of the results: scale.json, scale.html, and runs/ with a folder for each run.
#pragma once

#include <filesystem>
#include <string>

#include "tools/horo/scale/scale_document.h"

namespace horo::tools {

class ScaleFolder {
 public:
  explicit ScaleFolder(const std::string& path);

  // Makes it, and removes the runs of an earlier `horo scale run` in it. Throws std::invalid_argument: it has files of
  // something else, or cannot be made.
  void prepare() const;
  // Makes the folder of a run.
  std::string make_run(int ranks, int round) const;
  // Throws std::runtime_error: a file cannot be written.
  void write(const ScaleJson& json) const;
  // Throws std::invalid_argument: there is no scale.json, or it is no such document.
  ScaleJson read() const;
  void write_page(const ScaleJson& json) const;

  std::string json_file() const { return (path_ / "scale.json").string(); }
  std::string page_file() const { return (path_ / "scale.html").string(); }

 private:
  std::filesystem::path runs() const { return path_ / "runs"; }
  void write_file(const std::string& name, const std::string& text) const;

  const std::filesystem::path path_;
};

// Of scale.json: a line for each part and run, so that files of two measurements can be compared by lines.
std::string written(const ScaleJson& json);

}  // namespace horo::tools
