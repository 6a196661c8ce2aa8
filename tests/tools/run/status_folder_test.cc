#include "tools/horo/run/status_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace horo::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class StatusFolder : public testing::Test {
 protected:
  StatusFolder() {
    std::string made = std::filesystem::temp_directory_path() / "horo-folder-XXXXXX";
    EXPECT_NE(::mkdtemp(made.data()), nullptr);
    root_ = made;
  }
  ~StatusFolder() override { std::filesystem::remove_all(root_); }

  std::string root_;
  const uid_t own_ = ::geteuid();
};

TEST_F(StatusFolder, IsMadeForItsOwnerAlone) {
  const std::string folder = root_ + "/horo";
  EXPECT_EQ(make_private_folder(folder, own_), "");
  struct stat status {};
  ASSERT_EQ(::stat(folder.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700U);
  EXPECT_EQ(make_private_folder(folder, own_), "") << "it is there already";
}

TEST_F(StatusFolder, WithRightsOfOthersIsRefused) {
  const std::string folder = root_ + "/horo";
  for (const mode_t mode : {0701, 0720, 0755, 01700}) {
    ASSERT_TRUE(::mkdir(folder.c_str(), 0700) == 0 && ::chmod(folder.c_str(), mode) == 0);
    EXPECT_THAT(make_private_folder(folder, own_), HasSubstr("expected 0700"));
    ASSERT_EQ(::rmdir(folder.c_str()), 0);
  }
}

TEST_F(StatusFolder, OfAnotherUserIsRefused) {
  EXPECT_THAT(folder_fault(root_, own_ + 1), HasSubstr("belongs to user " + std::to_string(own_)));
}

TEST_F(StatusFolder, ThatIsALinkOrAFileIsRefused) {
  std::filesystem::create_directory_symlink(root_, root_ + "/link");
  EXPECT_THAT(make_private_folder(root_ + "/link", own_), HasSubstr("symbolic link"));
  std::ofstream(root_ + "/file") << "text";
  EXPECT_THAT(make_private_folder(root_ + "/file", own_), HasSubstr("no folder"));
  EXPECT_THAT(make_private_folder(root_ + "/none/horo", own_), HasSubstr("No such file"));
}

TEST_F(StatusFolder, ThatOthersCanReplaceIsRefused) {
  ASSERT_EQ(::chmod(root_.c_str(), 0777), 0);
  EXPECT_THAT(make_private_folder(root_ + "/horo", own_), HasSubstr("can replace"));
  ASSERT_EQ(::chmod(root_.c_str(), 01777), 0);
  EXPECT_EQ(make_private_folder(root_ + "/horo", own_), "") << "as in /tmp";
}

TEST_F(StatusFolder, ThePlacesAreThoseOfTheUser) {
  EXPECT_THAT(status_folders(nullptr, 7), ElementsAre("/run/user/7/horo", "/tmp/horo-7"));
  EXPECT_THAT(status_folders("", 7), ElementsAre("/run/user/7/horo", "/tmp/horo-7"));
  EXPECT_THAT(status_folders("relative", 7), ElementsAre("/run/user/7/horo", "/tmp/horo-7"));
  EXPECT_THAT(status_folders("/run/x", 7), ElementsAre("/run/x/horo", "/run/user/7/horo", "/tmp/horo-7"));
  EXPECT_THAT(status_folders("/run/user/7", 7), ElementsAre("/run/user/7/horo", "/tmp/horo-7"));
}

TEST_F(StatusFolder, OnlySocketsOfJobsAreFound) {
  for (const char* name :
       {"12.sock", "7.sock", "7.sock.new", "x.sock", "12x.sock", ".sock", "-3.sock", "0.sock", "9"}) {
    std::ofstream(root_ + "/" + name) << "";
  }
  std::vector<pid_t> jobs;
  for (const StatusSocket& socket : sockets_in(root_)) {
    jobs.push_back(socket.job);
    EXPECT_EQ(socket.path, socket_path(root_, socket.job));
  }
  EXPECT_THAT(jobs, ElementsAre(7, 12));
  EXPECT_TRUE(sockets_in(root_ + "/none").empty());
}

}  // namespace
}  // namespace horo::tools
