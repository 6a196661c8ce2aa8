#include "horo/base/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

namespace horo {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class OutputFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "horo-output-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const char* name) const { return folder_ + "/" + name; }
  void expect_refused(const char* name, const char* why) const {
    EXPECT_THAT([&] { open_output_file(AT_FDCWD, path(name), 0644); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(why)));
  }
  std::string folder_;
};

TEST_F(OutputFile, ItIsMadeOrOpenedWithWhatItHas) {
  for (const char* text : {"one", "two"}) {
    const int fd = open_output_file(AT_FDCWD, path("file"), 0644);
    ASSERT_EQ(::lseek(fd, 0, SEEK_END), text[0] == 'o' ? 0 : 3);
    ASSERT_EQ(::write(fd, text, 3), 3);
    ::close(fd);
  }
  EXPECT_EQ(std::filesystem::file_size(path("file")), 6U);
}

TEST_F(OutputFile, NoLinkIsFollowed) {
  std::ofstream(path("precious")) << "precious";
  std::filesystem::create_symlink("precious", path("link"));
  std::filesystem::create_symlink("missing", path("dangling"));
  std::filesystem::create_hard_link(path("precious"), path("name"));
  expect_refused("link", "a link");
  expect_refused("dangling", "a link");
  expect_refused("name", "several names");
  EXPECT_EQ(std::filesystem::file_size(path("precious")), 8U);
  EXPECT_FALSE(std::filesystem::exists(path("missing")));
}

TEST_F(OutputFile, APipeIsRefusedAndHoldsUpNothing) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  expect_refused("pipe", "neither a regular file nor a device");
  ::close(open_output_file(AT_FDCWD, "/dev/null", 0644));
}

TEST_F(OutputFile, AFileOrALinkOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "root alone can give files away";
  std::ofstream(path("theirs")) << "x";
  ASSERT_EQ(::chown(path("theirs").c_str(), 12345, 0), 0);
  expect_refused("theirs", "another user");
  std::filesystem::create_directory(path("real"));
  std::filesystem::create_directory_symlink(path("real"), path("own"));
  ::close(open_output_folder(path("own")));
  ASSERT_EQ(::lchown(path("own").c_str(), 12345, 0), 0);
  EXPECT_THAT([&] { open_output_folder(path("own")); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("a link of another user")));
}

TEST_F(OutputFile, AFolderThatIsMissingIsNamedByItsError) {
  EXPECT_THROW(open_output_file(AT_FDCWD, path("no/file"), 0644), std::system_error);
  EXPECT_THROW(open_output_folder(path("no")), std::system_error);
}

}  // namespace
}  // namespace horo
