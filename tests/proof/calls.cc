#include "tests/proof/calls.h"

#include <algorithm>

#include "horo/base/shard.h"

namespace horo::proof {
namespace {

using Kind = CollectiveKind;

constexpr int kColumns = 2;  // of tensors that are cut into rows

// Small whole numbers, whose sums are exact.
class Values {
 public:
  Values(const Item& item, int tensor) : seed_(tensor) {
    for (const char c : item.name) seed_ = seed_ * 31 + c;
  }
  // The values that member `from` has for member `to`.
  std::vector<float> make(int from, int to, std::size_t count) const {
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i) {
      values.push_back(static_cast<float>(
          (seed_ + 7u * static_cast<unsigned>(from) + 11u * static_cast<unsigned>(to) + 3u * static_cast<unsigned>(i)) %
          50));
    }
    return values;
  }

 private:
  unsigned seed_;
};

class CallMaker {
 public:
  CallMaker(const Item& item, const Membership& membership, int tensor)
      : item_(item), membership_(membership), values_(item, tensor), tensor_(tensor) {}

  Call make() {
    TensorSpec& spec = call_.spec;
    spec.set = membership_.number;
    spec.kind = item_.kind;
    spec.stepwise = item_.stepwise;
    spec.op = item_.averages ? ReduceOp::kAverage : ReduceOp::kSum;
    // The tensors of a unit are named after it.
    if (item_.unit == 0) spec.name = item_.name;
    if (item_.is_coded) spec.codec = "fp16";
    spec.root = item_.root;
    if (item_.kind == Kind::kSendRecv) spec.peer = item_.peer;
    fill();
    call_.submission.in = call_.in.empty() ? nullptr : call_.in.data();
    call_.submission.out = call_.out.empty() || call_.is_varying ? nullptr : call_.out.data();
    call_.submission.out_bytes = call_.out.size() * sizeof(float);
    return std::move(call_);
  }

 private:
  int me() const { return membership_.member; }
  int n() const { return membership_.members; }
  std::size_t count() const { return static_cast<std::size_t>(item_.count + tensor_); }
  static bool has(const std::vector<int>& members, int member) {
    return std::find(members.begin(), members.end(), member) != members.end();
  }
  int rows(int from, int to) const { return (item_.count + 2 * from + 3 * to) % 5; }
  static std::size_t elements(int rows) { return static_cast<std::size_t>(rows * kColumns); }
  void append(std::vector<float>& to, const std::vector<float>& values) const {
    to.insert(to.end(), values.begin(), values.end());
  }

  void fill() {
    call_.spec.shape = {static_cast<std::int64_t>(count())};
    switch (item_.kind) {
      case Kind::kAllReduce:
      case Kind::kReduce:
      case Kind::kReduceScatter:
        return fill_sum();
      case Kind::kBroadcast:
        call_.expected = values_.make(item_.root, 0, count());
        call_.out.assign(count(), -1);
        if (me() == item_.root) call_.in = call_.expected;
        return;
      case Kind::kSendRecv:
        if (me() == item_.root) call_.in = values_.make(item_.root, 0, count());
        if (me() == item_.peer) call_.expected = values_.make(item_.root, 0, count());
        call_.out.assign(call_.expected.size(), -1);
        return;
      case Kind::kBarrier:
        call_.spec.shape.clear();
        return;
      default:
        call_.is_varying = true;
        fill_rows();
    }
  }

  void fill_sum() {
    call_.in = values_.make(me(), 0, count());
    call_.submission.absent = has(item_.absent, me());
    std::vector<float> sum(count(), 0);
    bool anybody = false;
    for (int member = 0; member < n(); ++member) {
      if (has(item_.absent, member) || has(membership_.joined, member)) continue;
      anybody = true;
      const auto values = values_.make(member, 0, count());
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    }
    if (item_.averages) {
      for (float& value : sum) value /= static_cast<float>(n());
    }
    call_.is_absent = !anybody;
    const Shard shard = item_.kind == Kind::kReduceScatter ? shard_of(count(), n(), me()) : Shard{0, count()};
    const bool gets = item_.kind != Kind::kReduce || me() == item_.root;
    const auto begin = sum.begin() + static_cast<std::ptrdiff_t>(shard.begin);
    if (gets) call_.expected.assign(begin, begin + static_cast<std::ptrdiff_t>(shard.size));
    call_.out.assign(call_.expected.size(), -1);
    if (!anybody) call_.expected = call_.out;
  }

  void fill_rows() {
    int mine = 0;
    const bool is_root = me() == item_.root;
    for (int other = 0; other < n(); ++other) {
      if (item_.kind == Kind::kAllToAll || (item_.kind == Kind::kScatter && is_root)) {
        call_.submission.splits.push_back(rows(me(), other));
        append(call_.in, values_.make(me(), other, elements(rows(me(), other))));
        mine += rows(me(), other);
      }
      const bool gathers = item_.kind == Kind::kAllGather || (item_.kind == Kind::kGather && is_root);
      if (gathers) append(call_.expected, values_.make(other, 0, elements(rows(other, 0))));
      if (item_.kind == Kind::kAllToAll) {
        append(call_.expected, values_.make(other, me(), elements(rows(other, me()))));
      }
    }
    if (item_.kind == Kind::kAllGather || item_.kind == Kind::kGather) {
      mine = rows(me(), 0);
      call_.in = values_.make(me(), 0, elements(mine));
    }
    if (item_.kind == Kind::kScatter) {
      call_.expected = values_.make(item_.root, me(), elements(rows(item_.root, me())));
    }
    call_.spec.shape = {mine, kColumns};
  }

  const Item& item_;
  const Membership& membership_;
  const Values values_;
  const int tensor_;
  Call call_;
};

}  // namespace

bool takes_part(const Item& item, int member) {
  return item.kind != Kind::kSendRecv || member == item.root || member == item.peer;
}

Call make_call(const Item& item, const Membership& membership, int tensor) {
  Call call = CallMaker(item, membership, tensor).make();
  if (item.mistake == Mistake::kNone || membership.member != item.culprit || tensor > 0) return call;
  const bool has_no_codec = item.mistake == Mistake::kType || item.mistake == Mistake::kOperation;
  if (has_no_codec) call.spec.codec.clear();
  if (item.mistake == Mistake::kType) call.spec.dtype = DType::kInt32;  // has the size of float32
  if (item.mistake == Mistake::kOperation) call.spec.op = ReduceOp::kMax;
  return call;
}

Item with_mistake(const Item& item, int members) {
  Item changed = item;
  if (item.mistake == Mistake::kShape) ++changed.count;
  if (item.mistake == Mistake::kRoot) changed.root = (item.root + 1) % members;
  return changed;
}

}  // namespace horo::proof
