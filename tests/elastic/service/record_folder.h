// A folder with a record log, and its file.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "elastic/service/record_log.h"

namespace horo {

inline std::vector<std::byte> record_bytes(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline std::string text_of(const StoredRecord& record) {
  return {reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size()};
}

class RecordFolder : public testing::Test {
 protected:
  RecordFolder() {
    std::string made = std::filesystem::temp_directory_path() / "horo-record-XXXXXX";
    EXPECT_NE(::mkdtemp(made.data()), nullptr);
    above_ = made;
    folder_ = above_ / "log";
    file_ = folder_ / "record.log";
  }
  ~RecordFolder() override { std::filesystem::remove_all(above_); }

  std::string content() const {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void set_content(const std::string& content) const {
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << content;
  }
  StoredRecord reopened() const { return open_record_log(folder_)->read(); }

  std::filesystem::path above_, folder_, file_;
};

}  // namespace horo
