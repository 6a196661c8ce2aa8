#include "horo/base/tensor_spec.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

namespace horo {
namespace {

TensorSpec spec_of(CollectiveKind kind, std::vector<std::int64_t> shape) {
  TensorSpec spec;
  spec.name = "weight";
  spec.kind = kind;
  spec.shape = std::move(shape);
  return spec;
}

TEST(TensorSpec, CountsElementsAndBytes) {
  TensorSpec spec = spec_of(CollectiveKind::kAllReduce, {64, 3});
  EXPECT_EQ(spec.elements(), 192U);
  EXPECT_EQ(spec.bytes(), 768U);
  spec.dtype = DType::kFloat64;
  spec.shape = {};
  EXPECT_EQ(spec.bytes(), 8U) << "a scalar is one element";
  spec.shape = {5, 0, 7};
  EXPECT_EQ(spec.elements(), 0U);
}

TEST(TensorSpec, ShapesThatCannotExistAreRefused) {
  EXPECT_THROW(spec_of(CollectiveKind::kAllReduce, {2, -1}).elements(), std::invalid_argument);
  EXPECT_THROW(spec_of(CollectiveKind::kAllReduce, {1LL << 30, 1LL << 30}).elements(), std::invalid_argument);
  EXPECT_THROW(spec_of(CollectiveKind::kAllReduce, {1LL << 40, 1LL << 40, 0}).elements(), std::invalid_argument);
  EXPECT_EQ(spec_of(CollectiveKind::kAllReduce, {1LL << 29, 1LL << 29}).elements(), 1ULL << 58);
}

TEST(TensorSpec, EqualSpecsDoNotDiffer) {
  const TensorSpec spec = spec_of(CollectiveKind::kAllReduce, {64, 3});
  EXPECT_EQ(difference(spec, spec), "");
  EXPECT_EQ(spec, TensorSpec(spec));
}

TEST(TensorSpec, EveryFieldThatMattersIsNamedWithBothValues) {
  const TensorSpec spec = spec_of(CollectiveKind::kAllReduce, {64, 3});
  const auto changed = [&](auto change) {
    TensorSpec other = spec;
    change(other);
    return difference(spec, other);
  };
  EXPECT_EQ(changed([](auto& s) { s.kind = CollectiveKind::kAllGather; }), "all_reduce against all_gather");
  EXPECT_EQ(changed([](auto& s) { s.dtype = DType::kInt32; }), "float32 against int32");
  EXPECT_EQ(changed([](auto& s) { s.op = ReduceOp::kMax; }), "sum against max");
  EXPECT_EQ(changed([](auto& s) { s.order = Order::kFast; }), "order canonical against fast");
  EXPECT_EQ(changed([](auto& s) { s.prescale = 0.5; }), "prescale 1 against 0.5");
  EXPECT_EQ(changed([](auto& s) { s.postscale = 1 + 1e-15; }), "postscale 1 against 1.0000000000000011");
  EXPECT_EQ(changed([](auto& s) { s.shape = {64, 4}; }), "shape [64, 3] against [64, 4]");
  EXPECT_EQ(changed([](auto& s) { s.shape = {}; }), "shape [64, 3] against []");
  EXPECT_NE(changed([](auto& s) { s.once = true; }), "");
  EXPECT_EQ(changed([](auto& s) { s.codec = "int8"; }), "codec none against 'int8'");
  EXPECT_EQ(changed([](auto& s) { s.custom_op = "mine"; }), "operation none against 'mine'");
  EXPECT_EQ(changed([](auto& s) { s.splits = {60, 4}; }), "splits [] against [60, 4]");
  EXPECT_EQ(changed([](auto& s) { s.unit = "block"; }), "unit none against 'block'");
  EXPECT_EQ(changed([](auto& s) { s.unit_size = 2; }), "a unit of 0 tensors against 2");
}

TEST(TensorSpec, TheTwoOfASendRecvMustNameEachOther) {
  TensorSpec sent = spec_of(CollectiveKind::kSendRecv, {4});
  sent.peer = 1;
  TensorSpec received = sent;
  EXPECT_EQ(difference(sent, received), "");
  received.peer = 2;
  EXPECT_EQ(difference(sent, received), "receiver 1 against 2");
  EXPECT_EQ(describe(sent), "send_recv from 0 to 1 float32 [4]");
}

TEST(TensorSpec, AProcessSetIsItsRanks) {
  const TensorSpec set = spec_of(CollectiveKind::kAddSet, {0, 2});
  EXPECT_EQ(difference(set, spec_of(CollectiveKind::kAddSet, {0, 3})), "ranks [0, 2] against [0, 3]");
  EXPECT_EQ(describe(set), "add_process_set [0, 2]");
  TensorSpec named = set;
  named.set_name = "tp0";
  EXPECT_EQ(difference(set, named), "name none against 'tp0'");
  TensorSpec shrinking = set;
  shrinking.shrinks = true;
  EXPECT_EQ(difference(set, shrinking), "shrinks false against true");
}

TEST(TensorSpec, WhatACollectiveDoesNotUseDoesNotMatter) {
  TensorSpec a = spec_of(CollectiveKind::kBroadcast, {4});
  TensorSpec b = a;
  b.op = ReduceOp::kMax;
  EXPECT_EQ(difference(a, b), "");
  b.root = 3;
  EXPECT_EQ(difference(a, b), "root 0 against 3");
  a.kind = b.kind = CollectiveKind::kAllReduce;
  a.op = b.op;
  EXPECT_EQ(difference(a, b), "") << "an all_reduce has no root";
}

TEST(TensorSpec, OnlyTheFirstDimensionOfAnAllGatherMayDiffer) {
  const auto gather = [](std::vector<std::int64_t> shape) {
    return spec_of(CollectiveKind::kAllGather, std::move(shape));
  };
  EXPECT_EQ(difference(gather({5, 3}), gather({0, 3})), "");
  EXPECT_EQ(difference(gather({5, 3}), gather({5, 4})), "shape [5, 3] against [5, 4]");
  EXPECT_NE(difference(gather({5}), gather({5, 1})), "");
  EXPECT_NE(difference(gather({}), gather({5})), "") << "a scalar has no first dimension";
}

TEST(TensorSpec, DescribesItselfInTheWordsOfTheUser) {
  TensorSpec spec = spec_of(CollectiveKind::kAllReduce, {64, 3});
  spec.op = ReduceOp::kAverage;
  EXPECT_EQ(describe(spec), "all_reduce average float32 [64, 3]");
  spec.kind = CollectiveKind::kBroadcast;
  spec.root = 2;
  EXPECT_EQ(describe(spec), "broadcast from root 2 float32 [64, 3]");
  EXPECT_EQ(describe(spec_of(CollectiveKind::kBarrier, {})), "barrier");
}

}  // namespace
}  // namespace horo
