#include "elastic/service/record_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

namespace horo {
namespace {

using Bytes = std::vector<std::byte>;

class RecordMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 2; ++i) fds_.push_back(::memfd_create("record", MFD_CLOEXEC));
  }
  void TearDown() override {
    for (const int fd : fds_) ::close(fd);
  }
  StoredRecord read() const { return open_record_memory(fds_)->read(); }

  std::vector<int> fds_;
};

TEST_F(RecordMemoryTest, TheLastRecordIsReadByTheNextProcess) {
  EXPECT_EQ(read().revision, 0U);
  for (std::uint64_t revision = 1; revision <= 5; ++revision) {
    const Bytes bytes(revision * 1'000 % 3'333, std::byte(revision));
    EXPECT_TRUE(open_record_memory(fds_)->write(revision - 1, bytes));
    EXPECT_EQ(read().revision, revision);
    EXPECT_EQ(read().bytes, bytes);
  }
  EXPECT_FALSE(open_record_memory(fds_)->write(4, {}));
  EXPECT_EQ(read().revision, 5U);
}

// A process that is killed in a write leaves any prefix of it.
TEST_F(RecordMemoryTest, AWriteThatWasNotEndedLeavesTheRecordBefore) {
  const Bytes first(300, std::byte{1}), second(500, std::byte{2});
  const auto store = open_record_memory(fds_);
  ASSERT_TRUE(store->write(0, first));
  ASSERT_TRUE(store->write(1, second));
  const int last = ::lseek(fds_[0], 0, SEEK_END) > ::lseek(fds_[1], 0, SEEK_END) ? fds_[0] : fds_[1];
  for (off_t bytes = ::lseek(last, 0, SEEK_END) - 1; bytes >= 0; --bytes) {
    ASSERT_EQ(::ftruncate(last, bytes), 0);
    ASSERT_EQ(read().revision, 1U) << bytes;
  }
  EXPECT_EQ(read().bytes, first);
  EXPECT_TRUE(open_record_memory(fds_)->write(1, second));
  EXPECT_EQ(read().bytes, second);
}

TEST_F(RecordMemoryTest, AnotherFileIsRefused) {
  const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_THROW(open_record_memory({fd, fds_[0]}), std::invalid_argument);
  EXPECT_THROW(open_record_memory({}), std::invalid_argument);
  ::close(fd);
}

}  // namespace
}  // namespace horo
