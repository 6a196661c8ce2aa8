#include "horo/base/config.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string_view>

#include "horo/base/ancestor_key.h"
#include "horo/base/key_file.h"
#include "tests/base/refusal.h"

namespace horo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Config parse(const Variables& variables) {
  return config_from([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string config_refusal(const Variables& variables) {
  return refusal_of([&] { parse(variables); });
}

Variables world(std::string rank, std::string size) {
  return {{"HORO_RANK", rank}, {"HORO_SIZE", size}, {"HORO_ADDR", "127.0.0.1:4000"}};
}

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

TEST(Config, WithoutVariablesTheWorldIsThisProcessAlone) {
  const Config config = parse({});
  EXPECT_EQ(config.rank, 0);
  EXPECT_EQ(config.size, 1);
  EXPECT_EQ(config.local_size, 1);
  EXPECT_EQ(config.bucket_bytes, Config().bucket_bytes);
  EXPECT_EQ(config.host_id, this_host_id());
  EXPECT_FALSE(config.key.has_value());
}

TEST(Config, LocalRanksDefaultToOneHost) {
  const Config config = parse(world("2", "4"));
  EXPECT_EQ(config.local_rank, 2);
  EXPECT_EQ(config.local_size, 4);
}

TEST(Config, EveryNumberIsRead) {
  const Config config = parse({{"HORO_INCARNATION", "4294967295"},
                               {"HORO_BUCKET_BYTES", "0"},
                               {"HORO_SEGMENT_BYTES", "4096"},
                               {"HORO_START_TIMEOUT_MS", "1"},
                               {"HORO_HELLO_TIMEOUT_MS", "2"},
                               {"HORO_DEADLINE_MS", "3"},
                               {"HORO_STALL_LIMIT_MS", "4"},
                               {"HORO_MAX_RANKS", "5"},
                               {"HORO_MAX_NAME_BYTES", "6"},
                               {"HORO_MAX_DIMS", "7"},
                               {"HORO_MAX_TENSORS", "8"},
                               {"HORO_MAX_MESSAGE_BYTES", "9000"},
                               {"HORO_MAX_EARLY_BYTES", "10"}});
  EXPECT_EQ(config.incarnation, 4294967295U);
  EXPECT_EQ(config.bucket_bytes, 0U);
  EXPECT_EQ(config.segment_bytes, 4096U);
  EXPECT_EQ(config.start_timeout.count() + config.hello_timeout.count(), 3);
  EXPECT_EQ(config.deadline.count() + config.stall_limit.count(), 7);
  EXPECT_EQ(config.max_ranks + config.max_name_bytes + config.max_dims + config.max_tensors, 26U);
  EXPECT_EQ(config.max_message_bytes + config.max_early_bytes, 9010U);
}

TEST(Config, EveryTextIsRead) {
  const Config config = parse({{"HORO_ADDR", "[::1]:65535"}, {"HORO_HOST_ID", "here"}, {"HORO_JOB", "night run"}});
  EXPECT_EQ(config.addr, "[::1]:65535");
  EXPECT_EQ(config.host_id, "here");
  EXPECT_EQ(config.job, "night run");
}

TEST(Config, WhatIsNotANumberInItsRangeIsRefusedByName) {
  for (const char* value : {"", " 1", "1 ", "+1", "0x10", "1e3", "-1", "12a", "99999999999999999999"}) {
    EXPECT_THAT(config_refusal({{"HORO_BUCKET_BYTES", value}}),
                AllOf(HasSubstr("HORO_BUCKET_BYTES=\"" + std::string(value) + "\""), HasSubstr("from 0 to")));
  }
  EXPECT_THAT(config_refusal({{"HORO_DEADLINE_MS", "0"}}),
              HasSubstr("HORO_DEADLINE_MS=\"0\": expected a whole number from 1"));
}

TEST(Config, RankAndSizeComeTogether) {
  EXPECT_THAT(config_refusal({{"HORO_RANK", "1"}}), AllOf(HasSubstr("HORO_RANK"), HasSubstr("HORO_SIZE")));
  EXPECT_THAT(config_refusal({{"HORO_SIZE", "1"}}), AllOf(HasSubstr("HORO_RANK"), HasSubstr("HORO_SIZE")));
}

TEST(Config, RanksThatDoNotFitTogetherAreRefused) {
  EXPECT_THAT(config_refusal(world("4", "4")), HasSubstr("HORO_RANK=\"4\": expected a rank below HORO_SIZE=4"));
  EXPECT_THAT(config_refusal(with(world("0", "4"), "HORO_LOCAL_SIZE", "5")), HasSubstr("at most HORO_SIZE=4"));
  EXPECT_THAT(config_refusal(with(world("3", "4"), "HORO_LOCAL_SIZE", "2")), HasSubstr("below HORO_LOCAL_SIZE=2"));
  EXPECT_THAT(config_refusal(with(world("0", "9"), "HORO_MAX_RANKS", "8")), HasSubstr("HORO_MAX_RANKS=8"));
}

TEST(Config, SeveralRanksNeedAnAddress) {
  EXPECT_THAT(config_refusal({{"HORO_RANK", "0"}, {"HORO_SIZE", "2"}}), HasSubstr("HORO_ADDR is not set"));
  EXPECT_EQ(config_refusal({{"HORO_RANK", "0"}, {"HORO_SIZE", "1"}}), "accepted");
}

TEST(Config, AnAddressIsHostAndPort) {
  for (const char* addr : {"", "host", "host:", ":80", "host:0", "host:65536", "host:80x"}) {
    EXPECT_THAT(config_refusal({{"HORO_ADDR", addr}}), HasSubstr("HORO_ADDR")) << addr;
  }
}

class KeyTest : public testing::Test {
 protected:
  KeyTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "horo_key_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    path_ = (folder_ / "key").string();
  }
  ~KeyTest() override { std::filesystem::remove_all(folder_); }

  void write_file(std::size_t bytes, mode_t mode) {
    std::ofstream(path_) << std::string(bytes, 'k');
    ::chmod(path_.c_str(), mode);
  }

  std::filesystem::path folder_;
  std::string path_;
};

int memfd_with(std::size_t bytes) {
  const int fd = ::memfd_create("key", MFD_CLOEXEC);
  const std::string text(bytes, 'k');
  EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(bytes));
  return fd;
}

TEST_F(KeyTest, ADescriptorCanBeReadAgainAndAgain) {
  const int fd = memfd_with(kKeyBytes);
  for (int i = 0; i < 2; ++i) {
    const Config config = parse({{"HORO_KEY_FD", std::to_string(fd)}});
    ASSERT_TRUE(config.key.has_value());
    EXPECT_EQ(config.key->front(), std::byte{'k'});
    EXPECT_EQ(config.key->back(), std::byte{'k'});
  }
  ::close(fd);
}

TEST_F(KeyTest, ADescriptorWithAnotherNumberOfBytesIsRefused) {
  for (const std::size_t bytes : {0, 31, 33, 4096}) {
    const int fd = memfd_with(bytes);
    EXPECT_THAT(config_refusal({{"HORO_KEY_FD", std::to_string(fd)}}), HasSubstr("exactly 32 bytes")) << bytes;
    ::close(fd);
  }
}

TEST_F(KeyTest, ADescriptorThatIsNotOpenIsRefused) {
  EXPECT_THAT(config_refusal({{"HORO_KEY_FD", "987654"}}),
              AllOf(HasSubstr("HORO_KEY_FD=\"987654\""), HasSubstr("A process that a rank has started")));
}

// As `horo run`, a launcher in between that closes all descriptors, and the rank.
TEST_F(KeyTest, TheKeyOfHoroRunIsFoundByTheProcessOfALauncherInBetween) {
  for (const char* name : {"horo-key", "another"}) {
    const int fd = ::memfd_create(name, MFD_CLOEXEC);
    ASSERT_EQ(::write(fd, std::string(kKeyBytes, 'k').data(), kKeyBytes), static_cast<ssize_t>(kKeyBytes));
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(fd);
      const int key = open_key_of_ancestor(fd);
      char first = 0;
      ::_exit(key < 0 ? 1 : ::pread(key, &first, 1, 0) == 1 && first == 'k' ? 2 : 3);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(WEXITSTATUS(status), name == std::string_view("horo-key") ? 2 : 1) << name;
    ::close(fd);
  }
}

TEST_F(KeyTest, AFileOfMode0600IsRead) {
  write_file(kKeyBytes, 0600);
  EXPECT_TRUE(parse({{"HORO_KEY_FILE", path_}}).key.has_value());
}

TEST_F(KeyTest, AFileThatOthersMayReadIsRefused) {
  for (const mode_t mode : {0604, 0644, 0620, 0602}) {
    write_file(kKeyBytes, mode);
    EXPECT_THAT(config_refusal({{"HORO_KEY_FILE", path_}}), AllOf(HasSubstr("HORO_KEY_FILE"), HasSubstr("chmod 6")));
  }
}

TEST(KeyFile, IsSafeWhereNoOtherUserMayWriteItOrReadItButByTheWillOfRoot) {
  constexpr uid_t kUser = 1000, kOther = 1001;
  struct Case {
    mode_t mode;
    uid_t owner;
    bool is_read_only, is_safe;
  };
  for (const Case& one : {
           Case{0600, kUser, false, true},
           Case{0400, kUser, false, true},
           Case{0700, kUser, false, true},
           Case{0640, kUser, false, false},
           Case{0440, kUser, true, false},
           Case{0444, kUser, true, false},
           Case{0604, kUser, false, false},
           Case{0600, kOther, false, false},
           Case{0444, kOther, true, false},
           Case{0400, 0, false, true},
           Case{0440, 0, false, true},
           Case{0640, 0, false, true},
           Case{0660, 0, false, false},
           Case{0644, 0, false, false},
           Case{0444, 0, false, false},
           Case{0444, 0, true, true},
           Case{0644, 0, true, true},
           Case{0646, 0, true, false},
       }) {
    const KeyFileFacts facts{S_IFREG | one.mode, one.owner, kUser, one.is_read_only};
    EXPECT_EQ(key_file_fault(facts).empty(), one.is_safe)
        << std::oct << one.mode << " of " << std::dec << one.owner << ": " << key_file_fault(facts);
  }
  EXPECT_EQ(key_file_fault({S_IFDIR | 0700, kUser, kUser, false}), "a regular file");
}

// As the volumes of Kubernetes are: key -> ..data/key, ..data -> ..2026_11_26.
TEST_F(KeyTest, ASecretBehindLinksIsRead) {
  write_file(kKeyBytes, 0400);
  std::filesystem::create_directory(folder_ / "..1");
  std::filesystem::rename(path_, folder_ / "..1" / "secret");
  std::filesystem::create_directory_symlink("..1", folder_ / "..data");
  std::filesystem::create_symlink("..data/secret", folder_ / "secret");
  EXPECT_TRUE(parse({{"HORO_KEY_FILE", (folder_ / "secret").string()}}).key.has_value());
}

TEST_F(KeyTest, WhatIsNoRegularFileIsRefused) {
  EXPECT_THAT(config_refusal({{"HORO_KEY_FILE", folder_.string()}}), HasSubstr("a regular file"));
  EXPECT_THAT(config_refusal({{"HORO_KEY_FILE", path_}}), HasSubstr("No such file"));
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(config_refusal({{"HORO_KEY_FILE", path_}}), HasSubstr("a regular file"));
}

TEST_F(KeyTest, BothWaysAtOnceAreRefused) {
  EXPECT_THAT(config_refusal({{"HORO_KEY_FILE", path_}, {"HORO_KEY_FD", "3"}}),
              AllOf(HasSubstr("HORO_KEY_FILE"), HasSubstr("HORO_KEY_FD")));
}

TEST_F(KeyTest, NoMessageHoldsTheKey) {
  write_file(kKeyBytes + 1, 0600);
  EXPECT_THAT(config_refusal({{"HORO_KEY_FILE", path_}}), testing::Not(HasSubstr("kkkk")));
}

TEST(Config, TheEnvironmentIsReadByTheSameRules) {
  ::setenv("HORO_BUCKET_BYTES", "77", 1);
  EXPECT_EQ(config_from_environment().bucket_bytes, 77U);
  ::unsetenv("HORO_BUCKET_BYTES");
}

}  // namespace
}  // namespace horo
