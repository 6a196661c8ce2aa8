// The C ABI in a world of one rank: structs, handles, refused calls and callbacks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/c/horo_c.h"

namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class CAbi : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(session_, nullptr) << horo_error_text(nullptr); }
  void TearDown() override { horo_free(session_); }

  horo_tensor_spec spec_of(std::int32_t kind, const char* name) {
    horo_tensor_spec spec{};
    spec.struct_bytes = sizeof(spec);
    spec.kind = kind;
    spec.op = HORO_SUM;
    spec.dtype = HORO_FLOAT32;
    spec.prescale = spec.postscale = 1.0;
    spec.name = name;
    spec.shape = shape_.data();
    spec.dims = 1;
    return spec;
  }
  horo_submission submission_of(const void* in, void* out) {
    horo_submission submission{};
    submission.struct_bytes = sizeof(submission);
    submission.in = in;
    submission.out = out;
    return submission;
  }
  std::string error() const { return horo_error_text(session_); }
  std::int32_t wait(std::int64_t work) { return horo_wait(session_, &work, 1, 60'000); }
  horo_result result_of(std::int64_t work) {
    horo_result result{};
    result.struct_bytes = sizeof(result);
    EXPECT_EQ(wait(work), HORO_OK) << error();
    EXPECT_EQ(horo_get_result(session_, work, &result), HORO_OK) << error();
    return result;
  }

  const std::array<std::int64_t, 1> shape_ = {4};
  std::vector<float> x_ = {1, 2, 3, 4};
  std::array<const char*, 2> settings_ = {"HORO_RANK=0", "HORO_SIZE=1"};
  horo_session* const session_ = horo_init(settings_.data(), settings_.size());
};

TEST_F(CAbi, AStepHasTheBarsOfItsMarksAndTheyAddUp) {
  horo_step step{};
  step.struct_bytes = sizeof(step);
  EXPECT_EQ(horo_last_step(session_, &step), 0);
  horo_ended_step end{};
  end.struct_bytes = sizeof(end);
  end.samples = 32;
  end.work = -1;
  end.kinds = 1U << HORO_MARK_INPUT;
  ASSERT_EQ(horo_end_step(session_, &end), HORO_OK) << error();
  const std::array<std::int64_t, 4> marks = {2 * HORO_MARK_INPUT + 1, 0, 2 * HORO_MARK_INPUT, INT64_MAX};
  ASSERT_EQ(horo_add_marks(session_, marks.data(), 1), HORO_OK) << error();
  end.marks = marks.data() + 2;
  end.mark_count = 1;
  ASSERT_EQ(horo_end_step(session_, &end), HORO_OK) << error();
  ASSERT_EQ(horo_last_step(session_, &step), 1) << error();
  EXPECT_EQ(step.number, 1U);
  EXPECT_EQ(step.bars_ns[HORO_BAR_INPUT], step.time_ns);
  EXPECT_EQ(step.known >> HORO_BAR_FORWARD & 1U, 0U);
  EXPECT_EQ(step.samples, 32);
  EXPECT_EQ(step.gc_ns, -1);
  const std::array<std::int64_t, 2> unknown = {10, 0};
  EXPECT_EQ(horo_add_marks(session_, unknown.data(), 1), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(error(), HasSubstr("mark 10: expected 0 to 9"));
  EXPECT_EQ(horo_end_step(session_, nullptr), HORO_INVALID_ARGUMENT);
}

TEST_F(CAbi, AStaticJobHasNoNotice) {
  double grace_s = 7;
  EXPECT_EQ(horo_notice(session_, &grace_s), 0);
  EXPECT_EQ(grace_s, 7);
  EXPECT_EQ(horo_notice(session_, nullptr), 0);
  EXPECT_EQ(horo_notice(nullptr, &grace_s), HORO_INVALID_ARGUMENT);
}

TEST_F(CAbi, AKeyIsValidUntilItIsUndeclaredAsOftenAsDeclared) {
  const horo_tensor_spec spec = spec_of(HORO_ALL_REDUCE, "x");
  const std::array<std::int64_t, 2> keys = {horo_declare(session_, &spec), horo_declare(session_, &spec)};
  EXPECT_EQ(keys[0], keys[1]);
  EXPECT_EQ(horo_undeclare(session_, keys.data(), 1), HORO_OK);
  EXPECT_EQ(horo_undeclare(session_, keys.data(), 2), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(error(), HasSubstr("key 0"));
  EXPECT_EQ(wait(horo_submit(session_, keys[0], x_.data(), x_.data())), HORO_OK) << error();
  EXPECT_EQ(horo_undeclare(session_, keys.data(), 1), HORO_OK);
  EXPECT_EQ(horo_undeclare(session_, keys.data(), 1), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(horo_undeclare(session_, nullptr, 1), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(horo_undeclare(session_, nullptr, 0), HORO_OK);
}

TEST_F(CAbi, AUnitIsSubmittedWithOneCall) {
  std::vector<float> y(4);
  const std::array specs = {spec_of(HORO_ALL_REDUCE, nullptr), spec_of(HORO_BROADCAST, "y")};
  const std::array submissions = {submission_of(x_.data(), x_.data()), submission_of(x_.data(), y.data())};
  horo_unit unit{sizeof(horo_unit), 2, nullptr, specs.data(), submissions.data()};
  std::array<std::int64_t, 2> works{};
  ASSERT_EQ(horo_submit_unit(session_, &unit, works.data()), HORO_OK) << error();
  for (const std::int64_t work : works) EXPECT_EQ(wait(work), HORO_OK) << error();
  EXPECT_EQ(y, x_);
}

TEST_F(CAbi, SplitsAndOutReachAnAllToAll) {
  std::vector<float> out(6, -1.0f);
  const std::array<std::int64_t, 1> splits = {4};
  horo_submission submission = submission_of(x_.data(), out.data());
  submission.out_bytes = out.size() * sizeof(float);
  submission.splits = splits.data();
  submission.split_count = 1;
  const horo_tensor_spec spec = spec_of(HORO_ALL_TO_ALL, nullptr);
  const horo_result result = result_of(horo_submit_spec(session_, &spec, &submission));
  EXPECT_EQ(result.data, nullptr);
  EXPECT_EQ(result.bytes, 16u);
  EXPECT_THAT(std::vector(result.counts, result.counts + result.count_count), ElementsAre(4));
  EXPECT_THAT(out, ElementsAre(1, 2, 3, 4, -1, -1));
}

TEST_F(CAbi, AnOutWithoutRoomIsAnInvalidArgumentOfTheWork) {
  std::vector<float> out(4);
  const horo_tensor_spec spec = spec_of(HORO_ALL_GATHER, nullptr);
  const horo_submission submission = submission_of(x_.data(), out.data());
  EXPECT_EQ(wait(horo_submit_spec(session_, &spec, &submission)), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(error(), HasSubstr("the result has 16 bytes, out has room for 0"));
}

struct Halving {
  int encoded = 0;
};

std::uint64_t halves_bytes(void*, std::uint64_t count) {
  return 2 * count;
}

// Keeps the upper half of each value.
std::int32_t halves_encode(void* user, const float* x, float*, void* wire, std::uint64_t count) {
  static_cast<Halving*>(user)->encoded += 1;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::memcpy(static_cast<char*>(wire) + 2 * i, reinterpret_cast<const char*>(x + i) + 2, 2);
  }
  return 0;
}

std::int32_t halves_decode(void*, const void* wire, float* out, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    out[i] = 0;
    std::memcpy(reinterpret_cast<char*>(out + i) + 2, static_cast<const char*>(wire) + 2 * i, 2);
  }
  return 0;
}

TEST_F(CAbi, ACodecInCIsCalled) {
  Halving halving;
  const horo_codec codec{sizeof(horo_codec), 0, 1, halves_bytes, halves_encode, halves_decode, &halving};
  ASSERT_EQ(horo_register_codec(session_, "halves", &codec), HORO_OK) << error();
  EXPECT_EQ(horo_register_codec(session_, "halves", &codec), HORO_INVALID_ARGUMENT);
  x_ = {1, 1.00001f, 3, 4};
  horo_tensor_spec spec = spec_of(HORO_ALL_REDUCE, "x");
  spec.codec = "halves";
  const horo_submission submission = submission_of(x_.data(), x_.data());
  EXPECT_EQ(wait(horo_submit_spec(session_, &spec, &submission)), HORO_OK) << error();
  EXPECT_THAT(x_, ElementsAre(1, 1, 3, 4));
  EXPECT_GT(halving.encoded, 0);
}

TEST_F(CAbi, AnOperationNeedsAFlagAndAFunction) {
  horo_op op{sizeof(horo_op), 0, nullptr, nullptr};
  EXPECT_EQ(horo_register_op(session_, "mine", &op), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(error(), HasSubstr("HORO_OP_ASSOCIATIVE or HORO_OP_WHOLE"));
  op.flags = HORO_OP_WHOLE;
  EXPECT_EQ(horo_register_op(session_, "mine", &op), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(error(), HasSubstr("combine is a null pointer"));
  op.combine = [](void*, void*, const void*, std::uint64_t, std::int32_t) { return 0; };
  EXPECT_EQ(horo_register_op(session_, "", &op), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(horo_register_op(session_, "mine", &op), HORO_OK) << error();
}

TEST_F(CAbi, AllocatedMemoryOutlivesTheSession) {
  void* data = nullptr;
  horo_memory* memory = horo_allocate(session_, 0, 1 << 20, &data);
  ASSERT_NE(memory, nullptr) << error();
  horo_shutdown(session_);
  std::memset(data, 1, 1 << 20);
  horo_free_memory(memory);
  horo_free_memory(nullptr);
  EXPECT_EQ(horo_allocate(session_, 0, 1, &data), nullptr);
  EXPECT_EQ(horo_error_status(session_), HORO_SHUT_DOWN);
}

TEST_F(CAbi, ATensorOfEveryStepHasAPlaceInABucket) {
  horo_tensor_spec spec = spec_of(HORO_ALL_REDUCE, "x");
  spec.stepwise = 1;
  const horo_submission submission = submission_of(x_.data(), x_.data());
  const std::int64_t version = horo_plans_version(session_);
  horo_place place{sizeof(place), 7, 7, 7};
  for (int step = 0; step < 4; ++step) {
    const std::int64_t work = horo_submit_spec(session_, &spec, &submission);
    EXPECT_EQ(wait(work), HORO_OK) << error();
    EXPECT_EQ(horo_step_end(session_, 0), HORO_OK) << error();
    EXPECT_EQ(horo_get_places(session_, &work, 1, &place), HORO_OK) << error();
    EXPECT_TRUE(step > 0 || place.plan == 0);
  }
  EXPECT_GT(horo_plans_version(session_), version);
  EXPECT_GT(place.plan, 0u);
  EXPECT_EQ(place.offset, 0u);
  EXPECT_EQ(place.bytes, 16u);
}

TEST_F(CAbi, ATensorMayBeInRounds) {
  horo_tensor_spec spec = spec_of(HORO_ALL_REDUCE, "x");
  spec.stepwise = 1;
  spec.round_stream = 5;
  const horo_submission submission = submission_of(x_.data(), x_.data());
  EXPECT_EQ(horo_begin_round(session_, 0, 5, 0, 1), HORO_OK) << error();
  EXPECT_EQ(wait(horo_submit_spec(session_, &spec, &submission)), HORO_OK) << error();
  EXPECT_EQ(horo_fail_round(session_, 0, 5, nullptr), HORO_OK) << error();
  EXPECT_EQ(wait(horo_submit_spec(session_, &spec, &submission)), HORO_MISMATCH);
  EXPECT_THAT(error(), HasSubstr("rank 0 has given up round 1 of step 0: it gave no reason"));
  EXPECT_EQ(horo_begin_round(session_, 0, 5, 0, 2), HORO_OK) << error();
  EXPECT_EQ(wait(horo_submit_spec(session_, &spec, &submission)), HORO_OK) << error();
  EXPECT_EQ(horo_begin_round(session_, 0, 0, 0, 1), HORO_INVALID_ARGUMENT);
}

TEST_F(CAbi, AStructThatIsTooShortIsRefused) {
  horo_tensor_spec spec = spec_of(HORO_ALL_REDUCE, "x");
  --spec.struct_bytes;
  EXPECT_EQ(horo_declare(session_, &spec), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(error(), HasSubstr("horo_tensor_spec.struct_bytes is"));
}

TEST_F(CAbi, TheWorldIsASetLikeOthers) {
  horo_set_info info{};
  info.struct_bytes = sizeof(info);
  ASSERT_EQ(horo_get_set(session_, 0, &info), HORO_OK) << error();
  EXPECT_EQ(std::string(info.name), "world");
  EXPECT_EQ(info.size, 1);
  EXPECT_EQ(info.ranks[info.rank], 0);
  EXPECT_EQ(horo_get_set(session_, 5, &info), HORO_INVALID_ARGUMENT);
  const horo_result joined = result_of(horo_join(session_, 0));
  EXPECT_EQ(joined.counts[0], 0);
}

TEST_F(CAbi, TensorsHavePriorities) {
  std::vector<std::int64_t> works;
  std::vector<std::vector<float>> data(3, x_);
  const std::array names = {"a", "b", "c"};
  for (std::int32_t i = 0; i < 3; ++i) {
    horo_tensor_spec spec = spec_of(HORO_ALL_REDUCE, names[static_cast<std::size_t>(i)]);
    spec.priority = i == 0 ? INT32_MIN : i;
    float* mine = data[static_cast<std::size_t>(i)].data();
    const horo_submission submission = submission_of(mine, mine);
    works.push_back(horo_submit_spec(session_, &spec, &submission));
    ASSERT_GT(works.back(), 0) << error();
  }
  EXPECT_EQ(horo_wait(session_, works.data(), works.size(), 60'000), HORO_OK) << error();
  EXPECT_THAT(data, Each(x_));
}

TEST_F(CAbi, KnownHandlesAreReleasedThoughOneIsUnknown) {
  const horo_tensor_spec spec = spec_of(HORO_ALL_REDUCE, nullptr);
  const horo_submission submission = submission_of(x_.data(), x_.data());
  std::vector<std::int64_t> works;
  for (int i = 0; i < 100; ++i) {
    works.push_back(horo_submit_spec(session_, &spec, &submission));
    ASSERT_EQ(wait(works.back()), HORO_OK) << error();
  }
  const std::int64_t released = works[3];
  EXPECT_EQ(horo_release(session_, released), HORO_OK);
  EXPECT_EQ(horo_release_many(session_, works.data(), works.size()), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(error(), "there is no work " + std::to_string(released));
  for (const std::int64_t work : works) EXPECT_EQ(horo_poll(session_, work), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(horo_release_many(session_, nullptr, 0), HORO_OK);
}

// The world of one rank has a set of the same ranks already.
TEST_F(CAbi, MembersAddAndRemoveASetByItsName) {
  const std::int32_t rank = 0;
  EXPECT_EQ(horo_add_set_with(session_, &rank, 1, nullptr, HORO_SET_BY_MEMBERS), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(error(), HasSubstr("has a name, by which they find each other"));
  const std::int64_t work = horo_add_set_with(session_, &rank, 1, "tp", HORO_SET_BY_MEMBERS | HORO_SET_SHRINKS);
  ASSERT_EQ(horo_wait(session_, &work, 1, 10'000), HORO_OK) << error();
  horo_result result{};
  result.struct_bytes = sizeof result;
  ASSERT_EQ(horo_get_result(session_, work, &result), HORO_OK);
  ASSERT_EQ(result.count_count, 1);
  EXPECT_EQ(result.counts[0], 1);
  const std::int64_t removed = horo_remove_set(session_, 1);
  EXPECT_EQ(horo_wait(session_, &removed, 1, 10'000), HORO_OK) << error();
}

TEST_F(CAbi, NullPointersAndUnknownNumbersAreRefused) {
  std::int64_t work = 0;
  EXPECT_EQ(horo_submit_unit(session_, nullptr, &work), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(horo_add_set(session_, nullptr, 1, nullptr), HORO_INVALID_ARGUMENT);
  const std::int32_t rank = 0;
  EXPECT_EQ(horo_add_set_with(session_, &rank, 1, nullptr, 4), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(
      error(),
      "the flags of horo_add_set_with are 4, expected the sum of HORO_SET_SHRINKS and HORO_SET_BY_MEMBERS, one of "
      "them or 0");
  EXPECT_EQ(horo_remove_set(session_, 0), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(horo_remove_set(session_, 9), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(horo_register_op(session_, "mine", nullptr), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(horo_register_codec(session_, "mine", nullptr), HORO_INVALID_ARGUMENT);
  horo_unit unit{sizeof(horo_unit), 1, nullptr, nullptr, nullptr};
  EXPECT_EQ(horo_submit_unit(session_, &unit, &work), HORO_INVALID_ARGUMENT);
  horo_tensor_spec spec = spec_of(HORO_ALL_TO_ALL, nullptr);
  horo_submission submission = submission_of(x_.data(), nullptr);
  submission.split_count = 3;
  EXPECT_EQ(horo_submit_spec(session_, &spec, &submission), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(error(), HasSubstr("splits is a null pointer"));
  EXPECT_EQ(horo_submit_spec(session_, &spec, nullptr), HORO_INVALID_ARGUMENT);
  EXPECT_EQ(horo_allocate(session_, 0, 1, nullptr), nullptr);
  EXPECT_EQ(horo_get_places(session_, &work, 1, nullptr), HORO_INVALID_ARGUMENT);
  horo_place place{sizeof(place), 0, 0, 0};
  EXPECT_EQ(horo_get_places(session_, &work, 1, &place), HORO_INVALID_ARGUMENT);
  EXPECT_THAT(error(), HasSubstr("there is no work 0"));
}

}  // namespace
