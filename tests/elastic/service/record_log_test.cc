// What a record log keeps, and what it makes of a file that a crash or a disk has damaged.
#include "elastic/service/record_log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <random>
#include <system_error>

#include "tests/elastic/service/record_folder.h"

namespace horo {
namespace {

class RecordLogs : public RecordFolder {
 protected:
  // Writes these records; the length of the file after each.
  std::vector<std::size_t> write_all(const std::vector<std::string>& records) {
    const auto log = open_record_log(folder_);
    std::vector<std::size_t> ends;
    for (const std::string& record : records) {
      EXPECT_TRUE(log->write(log->read().revision, record_bytes(record)));
      ends.push_back(std::filesystem::file_size(file_));
    }
    return ends;
  }

  const std::vector<std::string> records_ = {"first", "", "the third, a longer one", "4"};
};

// While it lives, no file of this process grows beyond the size: writing fails with EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::size_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(RecordLogs, ANewLogHasNoRecord) {
  const StoredRecord record = open_record_log(folder_)->read();
  EXPECT_EQ(record.revision, 0U);
  EXPECT_TRUE(record.bytes.empty());
}

TEST_F(RecordLogs, TheLastRecordIsReadByThisProcessAndTheNext) {
  write_all(records_);
  EXPECT_EQ(reopened().revision, records_.size());
  EXPECT_EQ(text_of(reopened()), records_.back());
  const auto log = open_record_log(folder_);
  EXPECT_TRUE(log->write(4, record_bytes("fifth")));
  EXPECT_EQ(text_of(log->read()), "fifth");
  EXPECT_EQ(log->read().revision, 5U);
}

TEST_F(RecordLogs, AWriteForAnotherRevisionChangesNothing) {
  write_all(records_);
  const std::string before = content();
  const auto log = open_record_log(folder_);
  for (const std::uint64_t expected : {0, 3, 5}) EXPECT_FALSE(log->write(expected, record_bytes("x")));
  EXPECT_EQ(text_of(log->read()), records_.back());
  EXPECT_EQ(content(), before);
}

TEST_F(RecordLogs, AnOversizedRecordIsRefused) {
  const auto log = open_record_log(folder_);
  EXPECT_THROW(log->write(0, std::vector<std::byte>(kMaxRecordBytes + 1)), std::invalid_argument);
  EXPECT_TRUE(log->write(0, record_bytes("x")));
}

TEST_F(RecordLogs, AFileCutAnywhereHasItsLastWholeRecord) {
  const std::vector<std::size_t> ends = write_all(records_);
  const std::string whole = content();
  ASSERT_EQ(whole.size(), ends.back());
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    set_content(whole.substr(0, size));
    const auto kept = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), size) - ends.begin());
    const StoredRecord record = reopened();
    ASSERT_EQ(record.revision, kept) << size;
    ASSERT_EQ(text_of(record), kept == 0 ? "" : records_[kept - 1]);
    ASSERT_EQ(content().size(), kept == 0 ? 0 : ends[kept - 1]);
  }
}

TEST_F(RecordLogs, WritingGoesOnAfterACut) {
  const std::vector<std::size_t> ends = write_all(records_);
  set_content(content().substr(0, ends[3] - 1));
  EXPECT_TRUE(open_record_log(folder_)->write(3, record_bytes("new")));
  EXPECT_EQ(reopened().revision, 4U);
  EXPECT_EQ(text_of(reopened()), "new");
}

// Entries after a damaged one are not used, although they are whole.
TEST_F(RecordLogs, AChangedByteEndsTheLogBeforeItsEntry) {
  const std::vector<std::size_t> ends = write_all(records_);
  const std::string whole = content();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    set_content(damaged);
    const auto kept = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), at) - ends.begin());
    const StoredRecord record = reopened();
    ASSERT_EQ(record.revision, kept) << at;
    ASSERT_EQ(text_of(record), kept == 0 ? "" : records_[kept - 1]);
  }
}

// A block of an older file in the place of new bytes has valid checksums.
TEST_F(RecordLogs, AnEntryOutOfOrderEndsTheLog) {
  const std::vector<std::size_t> ends = write_all(records_);
  const std::string whole = content();
  set_content(whole + whole.substr(0, ends[0]));
  EXPECT_EQ(reopened().revision, 4U);
  set_content(whole.substr(0, ends[0]) + whole.substr(ends[1]));
  EXPECT_EQ(reopened().revision, 1U);
}

TEST_F(RecordLogs, AnyBytesAreALog) {
  const std::vector<std::size_t> ends = write_all(records_);
  const std::string whole = content();
  std::mt19937_64 random{11};
  for (int i = 0; i < 100; ++i) {
    std::string bytes = whole;
    for (std::size_t changes = 1 + random() % 4; changes > 0; --changes) {
      const std::size_t at = random() % (bytes.size() + 1);
      const std::size_t what = random() % 3;
      if (what == 0) bytes.insert(at, whole, random() % whole.size(), random() % 40);
      if (what == 1) bytes.erase(at, random() % 40);
      if (what == 2) bytes.insert(at, 1 + random() % 40, static_cast<char>(random()));
    }
    set_content(bytes);
    const StoredRecord record = reopened();
    ASSERT_LE(record.revision, records_.size());
    ASSERT_EQ(text_of(record), record.revision == 0 ? "" : records_[record.revision - 1]);
    ASSERT_EQ(bytes.substr(0, content().size()), content());
  }
}

TEST_F(RecordLogs, AWriteThatFailsLeavesTheLogAsItWas) {
  const std::vector<std::size_t> ends = write_all(records_);
  const auto log = open_record_log(folder_);
  const std::vector<std::byte> record(1000, std::byte{7});
  for (const std::size_t room : {0, 1, 20, 28, 29, 500, 1027}) {
    const FileSizeLimit limit(ends.back() + room);
    EXPECT_THROW(log->write(4, record), std::system_error);
    EXPECT_EQ(log->read().revision, 4U);
    EXPECT_EQ(text_of(log->read()), records_.back());
    EXPECT_EQ(content().size(), ends.back());
  }
  EXPECT_TRUE(log->write(4, record));
  EXPECT_EQ(log->read().bytes, record);
}

TEST_F(RecordLogs, ALongFileIsReplacedByItsLastRecord) {
  auto log = open_record_log(folder_);
  std::size_t largest = 0;
  bool has_shrunk = false;
  for (std::uint64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(log->write(i, std::vector<std::byte>(1000, static_cast<std::byte>(i))));
    const std::size_t size = std::filesystem::file_size(file_);
    has_shrunk |= size < largest;
    largest = std::max(largest, size);
  }
  EXPECT_TRUE(has_shrunk);
  EXPECT_LT(largest, 110'000U);
  log.reset();
  EXPECT_EQ(reopened().revision, 200U);
  EXPECT_EQ(reopened().bytes, std::vector<std::byte>(1000, std::byte{199}));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "record.tmp"));
}

TEST_F(RecordLogs, AFileThatCannotBeReplacedStaysLong) {
  auto log = open_record_log(folder_);
  std::filesystem::create_directory(folder_ / "record.tmp");
  for (std::uint64_t i = 0; i < 120; ++i) ASSERT_TRUE(log->write(i, std::vector<std::byte>(1000)));
  EXPECT_GT(std::filesystem::file_size(file_), 120'000U);
  std::filesystem::remove(folder_ / "record.tmp");
  ASSERT_TRUE(log->write(120, record_bytes("short")));
  EXPECT_LT(std::filesystem::file_size(file_), 100U);
  log.reset();
  EXPECT_EQ(text_of(reopened()), "short");
}

TEST_F(RecordLogs, AnUnfinishedReplacementIsForgotten) {
  write_all(records_);
  std::ofstream(folder_ / "record.tmp") << "half";
  EXPECT_EQ(text_of(reopened()), records_.back());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "record.tmp"));
}

}  // namespace
}  // namespace horo
