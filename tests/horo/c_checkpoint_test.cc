// The C ABI of checkpoints, in this process alone.
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "bindings/c/horo_c.h"

namespace {

using testing::HasSubstr;

class CCheckpoints : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "horo_c_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ + "/step-3";
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i);
  }
  void TearDown() override {
    horo_saver_free(saver_);
    std::filesystem::remove_all(folder_);
  }

  horo_checkpoint_tensor tensor(void* data) const {
    horo_checkpoint_tensor tensor{};
    tensor.struct_bytes = sizeof(tensor);
    tensor.name = "w";
    tensor.dtype = "float32";
    tensor.shape = shape_.data();
    tensor.dims = 2;
    tensor.alias_of = -1;
    tensor.data = data;
    return tensor;
  }
  horo_save_options options() const { return {sizeof(horo_save_options), path_.c_str(), "{\"x\": 1}", 3, 5, 2, 1}; }
  void save() {
    const horo_checkpoint_tensor given = tensor(nullptr);
    const horo_save_options how = options();
    ASSERT_EQ(horo_save_begin(saver_, nullptr, &how, &given, 1), HORO_OK) << horo_error_text(nullptr);
    std::uint64_t first = 9, rows = 9;
    ASSERT_EQ(horo_save_part(saver_, 0, &first, &rows), HORO_OK);
    EXPECT_EQ(first, 0U);
    EXPECT_EQ(rows, 4U);
    ASSERT_EQ(horo_save_take(saver_, 0, values_.data()), HORO_OK);
    ASSERT_EQ(horo_save_start(saver_), HORO_OK);
    ASSERT_EQ(horo_save_wait(saver_, -1), HORO_OK);
  }

  std::string folder_, path_;
  horo_saver* saver_ = horo_saver_make();
  const std::array<std::int64_t, 2> shape_{4, 3};
  std::array<float, 12> values_{};
};

TEST_F(CCheckpoints, ASaveIsPublishedListedAndLoaded) {
  save();
  horo_save_progress progress{};
  progress.struct_bytes = sizeof(progress);
  ASSERT_EQ(horo_save_progress_of(saver_, &progress), HORO_OK);
  EXPECT_EQ(progress.is_writing, 0);
  EXPECT_EQ(progress.bytes_done, 48U);
  EXPECT_EQ(progress.published, 1U);
  EXPECT_EQ(progress.published_step, 3U);
  EXPECT_THAT(horo_checkpoint_list(folder_.c_str()), HasSubstr("\"step\": 3, \"bytes\": 4144, \"error\": null"));
  horo_checkpoint* const found = horo_checkpoint_open(path_.c_str());
  ASSERT_NE(found, nullptr) << horo_error_text(nullptr);
  EXPECT_THAT(horo_checkpoint_index(found), HasSubstr("\"rest\": {\"x\": 1}"));
  EXPECT_EQ(horo_checkpoint_verify(found), HORO_OK);
  std::array<float, 12> loaded{};
  horo_checkpoint_tensor wanted = tensor(loaded.data());
  EXPECT_EQ(horo_checkpoint_load(found, nullptr, &wanted, 1, 1), HORO_OK);
  EXPECT_EQ(loaded, values_);
  const std::array<std::int64_t, 2> rows{1, 3};
  wanted.kind = HORO_SHARDED;
  wanted.intervals = rows.data();
  wanted.interval_count = 1;
  EXPECT_EQ(horo_checkpoint_load(found, nullptr, &wanted, 1, 0), HORO_OK);
  EXPECT_EQ(loaded[0], 3.F);
  wanted.name = "v";
  EXPECT_EQ(horo_checkpoint_load(found, nullptr, &wanted, 1, 0), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(horo_error_text(nullptr), HasSubstr("has no tensor v"));
  horo_checkpoint_close(found);
}

TEST_F(CCheckpoints, WrongCallsAreRefused) {
  EXPECT_EQ(horo_save_wait(saver_, 0), HORO_OK);  // there is none
  EXPECT_EQ(horo_save_start(saver_), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(horo_save_give_up(saver_, "why"), HORO_OK);
  EXPECT_EQ(horo_save_wait(nullptr, 0), HORO_INVALID_ARGUMENT);
  const horo_save_options how = options();
  horo_checkpoint_tensor given = tensor(nullptr);
  given.struct_bytes = 8;
  EXPECT_EQ(horo_save_begin(saver_, nullptr, &how, &given, 1), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(horo_error_text(nullptr), HasSubstr("horo_checkpoint_tensor has 8 bytes"));
  given = tensor(nullptr);
  given.kind = 3;
  EXPECT_EQ(horo_save_begin(saver_, nullptr, &how, &given, 1), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(horo_save_begin(saver_, nullptr, nullptr, &given, 1), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(horo_checkpoint_open((folder_ + "/none").c_str()), nullptr);
  EXPECT_THAT(horo_error_text(nullptr), HasSubstr("cannot open the folder " + folder_ + "/none: No such file"));
  EXPECT_EQ(horo_checkpoint_verify(nullptr), HORO_INVALID_ARGUMENT);
}

TEST_F(CCheckpoints, ASaveThatWasBegunIsNotWaitedFor) {
  const horo_checkpoint_tensor given = tensor(nullptr);
  const horo_save_options how = options();
  ASSERT_EQ(horo_save_begin(saver_, nullptr, &how, &given, 1), HORO_OK) << horo_error_text(nullptr);
  EXPECT_EQ(horo_save_wait(saver_, -1), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(horo_error_text(nullptr), HasSubstr("begun, and not started"));
}

TEST_F(CCheckpoints, ASaverThatUnlocksLetsAnotherOneIn) {
  ASSERT_EQ(horo_saver_lock(saver_, folder_.c_str()), HORO_OK);
  ASSERT_EQ(horo_saver_unlock(saver_), HORO_OK);
  horo_saver* const other = horo_saver_make();
  EXPECT_EQ(horo_saver_lock(other, folder_.c_str()), HORO_OK);
  horo_saver_free(other);
}

}  // namespace
