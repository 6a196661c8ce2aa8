// Which folders and files a record log accepts.
#include "tests/elastic/service/record_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>
#include <system_error>

namespace horo {
namespace {

using testing::HasSubstr;

class RecordFolders : public RecordFolder {
 protected:
  mode_t mode_of(const std::filesystem::path& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
  }
  // The message of the refusal; empty: the folder is accepted.
  std::string refusal() {
    try {
      open_record_log(folder_);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return {};
  }
};

TEST_F(RecordFolders, WhatIsMadeIsPrivate) {
  const mode_t before = ::umask(0);
  open_record_log(folder_);
  ::umask(before);
  EXPECT_EQ(mode_of(folder_), 0700U);
  EXPECT_EQ(mode_of(file_), 0600U);
  EXPECT_EQ(mode_of(folder_ / "record.lock"), 0600U);
}

TEST_F(RecordFolders, ASecondProcessIsRefused) {
  auto log = open_record_log(folder_);
  EXPECT_THAT(refusal(), HasSubstr("another rendezvous uses " + folder_.string()));
  EXPECT_TRUE(log->write(0, record_bytes("x")));
  log.reset();
  EXPECT_EQ(refusal(), "");
}

TEST_F(RecordFolders, AFolderThatOthersMayWriteIsRefused) {
  std::filesystem::create_directory(folder_);
  for (const mode_t mode : {0770, 0702}) {
    ASSERT_EQ(::chmod(folder_.c_str(), mode), 0);
    EXPECT_THAT(refusal(), HasSubstr("may write the folder " + folder_.string()));
  }
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  EXPECT_EQ(refusal(), "");
}

TEST_F(RecordFolders, AFileThatOthersMayReadIsRefused) {
  open_record_log(folder_);
  ASSERT_EQ(::chmod(file_.c_str(), 0640), 0);
  EXPECT_THAT(refusal(), HasSubstr("may open " + file_.string()));
}

TEST_F(RecordFolders, WhatBelongsToAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  open_record_log(folder_);
  ASSERT_EQ(::chown(file_.c_str(), 1, 1), 0);
  EXPECT_THAT(refusal(), HasSubstr(file_.string() + " belongs to another user"));
  ASSERT_EQ(::chown(folder_.c_str(), 1, 1), 0);
  EXPECT_THAT(refusal(), HasSubstr(folder_.string() + " belongs to another user"));
}

TEST_F(RecordFolders, LinksAndOtherFilesAreRefused) {
  open_record_log(above_ / "other");
  std::filesystem::create_directory_symlink(above_ / "other", folder_);
  EXPECT_THAT(refusal(), HasSubstr("is not a folder"));
  std::filesystem::remove(folder_);
  std::ofstream(folder_.string()) << "x";
  EXPECT_THAT(refusal(), HasSubstr("is not a folder"));
  std::filesystem::remove(folder_);
  std::filesystem::create_directory(folder_);
  ASSERT_EQ(::chmod(folder_.c_str(), 0700), 0);
  std::filesystem::create_symlink(above_ / "other" / "record.log", file_);
  EXPECT_THAT(refusal(), HasSubstr("is not a regular file"));
  std::filesystem::remove(file_);
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("is not a regular file"));
}

TEST_F(RecordFolders, AMissingParentIsAnError) {
  EXPECT_THROW(open_record_log(above_ / "missing" / "log"), std::system_error);
}

TEST_F(RecordFolders, AFolderMayBeNamedFromHere) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(above_);
  open_record_log("log");
  open_record_log("log/");
  open_record_log("other/");
  std::filesystem::current_path(before);
  EXPECT_TRUE(std::filesystem::exists(file_));
  EXPECT_TRUE(std::filesystem::exists(above_ / "other" / "record.log"));
}

}  // namespace
}  // namespace horo
