// An all_to_all, after which each contributor has all values of its shard of each tensor; an all_gather of the shards'
// dot products for each level of the tree; and an all_gather of the results. Vector halving (Maleki et al.) sends as
// many bytes, but needs a power of two of members.
#include "ring/group/adasum.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "horo/base/say.h"
#include "horo/base/shard.h"
#include "ring/reduce/reduce.h"

namespace horo {
namespace {

struct Dots {
  double ab = 0, aa = 0, bb = 0;
};
constexpr std::size_t kDots = sizeof(Dots) / sizeof(double);

// Element i is added to sum i % 8, so that the order does not depend on the processor's vectors.
template <class T>
Dots dots_of(const T* a, const T* b, std::size_t count) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> ab{}, aa{}, bb{};
  const auto add = [&](std::size_t i, std::size_t lane) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    ab[lane] += x * y;
    aa[lane] += x * x;
    bb[lane] += y * y;
  };
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) add(i, lane);
  const auto sum = [](const auto& lanes) { return std::accumulate(lanes.begin(), lanes.end(), 0.0); };
  return {sum(ab), sum(aa), sum(bb)};
}

// A square that is 0 or has lost its bits says nothing about the direction.
double factor(double ab, double square) {
  return square < std::numeric_limits<double>::min() ? 1.0 : 1.0 - ab / square / 2;
}

// a = the combination.
template <class T>
void combine(const Dots& dots, T* a, const T* b, std::size_t count) {
  const double of_a = factor(dots.ab, dots.aa), of_b = factor(dots.ab, dots.bb);
  for (std::size_t i = 0; i < count; ++i) {
    a[i] = static_cast<T>(of_a * static_cast<double>(a[i]) + of_b * static_cast<double>(b[i]));
  }
}

// A combination of the values of two contributors, which replaces that of the left one.
struct Join {
  int left, right;
};

// By level: joins of one level need none of each other's results.
std::vector<std::vector<Join>> levels_of(const std::vector<TreeStep>& tree) {
  struct Value {
    int contributor;
    std::size_t level;
  };
  std::vector<Value> stack;
  std::vector<std::vector<Join>> levels;
  for (const TreeStep& step : tree) {
    if (step.input != TreeStep::kJoin) {
      stack.push_back({step.input, 0});
      continue;
    }
    const Value right = stack.back();
    stack.pop_back();
    Value& left = stack.back();
    const std::size_t level = std::max(left.level, right.level);
    if (levels.size() <= level) levels.resize(level + 1);
    levels[level].push_back({left.contributor, right.contributor});
    left.level = level + 1;
  }
  return levels;
}

class AdasumRun {
 public:
  AdasumRun(Group& group, const Collective& collective, std::span<const AdasumTensor> tensors, AdasumScratch& scratch)
      : group_(group),
        collective_(collective),
        tensors_(tensors),
        scratch_(scratch),
        bytes_(size_of(collective.dtype)),
        is_double_(collective.dtype == DType::kFloat64) {
    expect(supports(collective.dtype, ReduceOp::kAdasum), say("it is not defined for ", name_of(collective.dtype)));
    find_contributors();
    for (const AdasumTensor& tensor : tensors) total_ += tensor.elements;
    if (own_ >= 0) mine_ = elements_of(own_);
  }

  void run() {
    if (total_ == 0) return;
    exchange();
    widen();
    for (const std::vector<Join>& joins : levels_of(tree_)) combine_level(joins);
    deliver();
  }

 private:
  void expect(bool holds, const std::string& otherwise) const {
    if (!holds) throw std::invalid_argument(say("all_reduce of ", collective_.what, " with adasum: ", otherwise));
  }

  void find_contributors() {
    const auto size = static_cast<std::size_t>(group_.size());
    expect(collective_.contributors.size() == size,
           say("expected ", size, " contributor ids, got ", collective_.contributors.size()));
    std::vector<std::int64_t> ids;
    for (int member = 0; member < group_.size(); ++member) {
      const std::int64_t id = collective_.contributors[static_cast<std::size_t>(member)];
      if (id == kAbsent) continue;
      expect(id >= 0 && (ids.empty() || id > ids.back()), "contributor ids must ascend from 0");
      if (member == group_.rank()) own_ = static_cast<int>(ids.size());
      ids.push_back(id);
      members_.push_back(static_cast<std::size_t>(member));
    }
    expect(!ids.empty(), "no member contributes");
    tree_ = canonical_tree(ids);
  }

  int contributors() const { return static_cast<int>(members_.size()); }
  // The part of a tensor that a contributor combines. It does not depend on members that are absent.
  Shard shard(const AdasumTensor& tensor, int contributor) const {
    return shard_of(tensor.elements, contributors(), contributor);
  }
  std::size_t elements_of(int contributor) const {
    std::size_t elements = 0;
    for (const AdasumTensor& tensor : tensors_) elements += shard(tensor, contributor).size;
    return elements;
  }

  // Calls f(tensor, elements of the shard before it within the tensor, its elements, elements before it on the wire)
  // for the shards in the order of the wire: by contributor, then by tensor.
  template <class F>
  void for_shards(F f) const {
    std::size_t at = 0;
    for (int contributor = 0; contributor < contributors(); ++contributor) {
      for (const AdasumTensor& tensor : tensors_) {
        const Shard part = shard(tensor, contributor);
        f(tensor, part, at);
        at += part.size;
      }
    }
  }

  // Collectives follow one another, and all members give values to those between the first and the last. So two plan
  // numbers, used alternately, are enough.
  Collective next(CollectiveKind kind, DType dtype) {
    Collective c;
    c.kind = kind;
    c.dtype = dtype;
    c.channel = collective_.channel;
    c.plan = collective_.plan + (collectives_++ % 2);
    c.key_hash = collective_.key_hash;
    c.deadline = collective_.deadline;
    c.what = collective_.what;
    return c;
  }

  // The shards of one tensor are in the order of the wire already.
  std::byte* wire() {
    if (tensors_.size() == 1) return tensors_.front().out;
    scratch_.wire.resize(std::max(scratch_.wire.size(), total_ * bytes_));
    return scratch_.wire.data();
  }

  const std::byte* packed() {
    if (tensors_.size() == 1) return tensors_.front().in;
    std::byte* to = wire();
    for_shards([&](const AdasumTensor& tensor, Shard part, std::size_t at) {
      if (part.size > 0) std::memcpy(to + at * bytes_, tensor.in + part.begin * bytes_, part.size * bytes_);
    });
    return to;
  }

  void exchange() {
    const auto n = static_cast<std::size_t>(group_.size());
    scratch_.received.resize(std::max(scratch_.received.size(), members_.size() * mine_ * bytes_));
    Collective c = next(CollectiveKind::kAllToAll, collective_.dtype);
    c.counts.assign(n * n, 0);
    for (const std::size_t from : members_) {
      for (int to = 0; to < contributors(); ++to) {
        c.counts[from * n + members_[static_cast<std::size_t>(to)]] = elements_of(to);
      }
    }
    if (own_ >= 0) {
      c.in = {const_cast<std::byte*>(packed()), total_ * bytes_};
      c.out = {scratch_.received.data(), members_.size() * mine_ * bytes_};
    }
    group_.run(c);
  }

  template <class T>
  T* values(int contributor) {
    return reinterpret_cast<T*>(scratch_.values.data()) + static_cast<std::size_t>(contributor) * mine_;
  }

  void widen() {
    const std::size_t count = members_.size() * mine_, wide = is_double_ ? sizeof(double) : sizeof(float);
    scratch_.values.resize(std::max(scratch_.values.size(), count * wide));
    const TreeStep leaf{0};
    const TreeInput input{scratch_.received.data(), false};
    reduce_tree({collective_.dtype, ReduceOp::kSum, {collective_.prescale, 1.0, 1.0}, true}, {&leaf, 1}, {&input, 1},
                scratch_.values.data(), count);
  }

  void combine_level(const std::vector<Join>& joins) {
    is_double_ ? combine_level_as<double>(joins) : combine_level_as<float>(joins);
  }

  template <class T>
  void combine_level_as(const std::vector<Join>& joins) {
    scratch_.dots.clear();
    for_pairs<T>(joins, [&](T* a, const T* b, std::size_t count) {
      const Dots dots = dots_of(a, b, count);
      scratch_.dots.insert(scratch_.dots.end(), {dots.ab, dots.aa, dots.bb});
    });
    gather_dots(joins.size() * tensors_.size() * kDots);
    std::size_t at = 0;
    for_pairs<T>(joins, [&](T* a, const T* b, std::size_t count) {
      combine(sums_at(at), a, b, count);
      at += kDots;
    });
  }

  // Calls f(left values, right values, elements) for this member's shard of each tensor, for each join.
  template <class T, class F>
  void for_pairs(const std::vector<Join>& joins, F f) {
    if (own_ < 0) return;
    for (const Join& join : joins) {
      std::size_t at = 0;
      for (const AdasumTensor& tensor : tensors_) {
        const std::size_t count = shard(tensor, own_).size;
        f(values<T>(join.left) + at, values<T>(join.right) + at, count);
        at += count;
      }
    }
  }

  void gather_dots(std::size_t count) {
    const auto n = static_cast<std::size_t>(group_.size());
    scratch_.dots.resize(count);  // of an absent member: zeros
    scratch_.all_dots.resize(n * count);
    Collective c = next(CollectiveKind::kAllGather, DType::kFloat64);
    c.counts.assign(n, count);
    c.in = {reinterpret_cast<std::byte*>(scratch_.dots.data()), count * sizeof(double)};
    c.out = {reinterpret_cast<std::byte*>(scratch_.all_dots.data()), n * count * sizeof(double)};
    group_.run(c);
  }

  Dots sums_at(std::size_t at) const {
    Dots sums;
    for (const std::size_t member : members_) {
      const double* dots = scratch_.all_dots.data() + member * scratch_.dots.size() + at;
      sums.ab += dots[0];
      sums.aa += dots[1];
      sums.bb += dots[2];
    }
    return sums;
  }

  // The result is in the place of the first contributor.
  void deliver() {
    std::byte* all = wire();
    std::size_t before = 0;
    for (int contributor = 0; contributor < own_; ++contributor) before += elements_of(contributor);
    const TreeStep leaf{0};
    const TreeInput input{scratch_.values.data(), true};
    reduce_tree({collective_.dtype, ReduceOp::kSum, {1.0, collective_.postscale, 1.0}, false}, {&leaf, 1}, {&input, 1},
                all + before * bytes_, mine_);
    Collective c = next(CollectiveKind::kAllGather, collective_.dtype);
    c.counts.assign(static_cast<std::size_t>(group_.size()), 0);
    for (int i = 0; i < contributors(); ++i) c.counts[members_[static_cast<std::size_t>(i)]] = elements_of(i);
    c.in = {all + before * bytes_, mine_ * bytes_};
    c.out = {all, total_ * bytes_};
    group_.run(c);
    if (tensors_.size() == 1) return;
    for_shards([&](const AdasumTensor& tensor, Shard part, std::size_t at) {
      if (part.size > 0) std::memcpy(tensor.out + part.begin * bytes_, all + at * bytes_, part.size * bytes_);
    });
  }

  Group& group_;
  const Collective& collective_;
  const std::span<const AdasumTensor> tensors_;
  AdasumScratch& scratch_;
  const std::size_t bytes_;           // of an element
  const bool is_double_;              // the accumulator type
  std::vector<std::size_t> members_;  // by contributor: its index in the group
  int own_ = -1;                      // this member's number among the contributors; -1: it is absent
  std::vector<TreeStep> tree_;
  std::size_t total_ = 0, mine_ = 0;  // elements: of all tensors, of this member's shards
  std::uint64_t collectives_ = 0;
};

}  // namespace

void run_adasum(Group& group, const Collective& collective, std::span<const AdasumTensor> tensors,
                AdasumScratch& scratch) {
  AdasumRun(group, collective, tensors, scratch).run();
}

}  // namespace horo
