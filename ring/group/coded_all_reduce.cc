// An all_to_all and an all_gather of encoded parts, as in one-bit Adam and quantised ZeRO (Tang et al., 2021; Wang et
// al., "ZeRO++", 2023). A ring would encode every partial sum again.
//
// Each tensor is cut into one part per member, at block boundaries and independently of the other tensors. The hash of
// its name chooses the owner of the first part; without it rank 0 would own all small tensors. So a block always has
// the same owner, which keeps its residual, and the bits do not depend on buckets.

#include "ring/group/coded_all_reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>

#include "horo/base/check.h"
#include "horo/base/say.h"
#include "horo/base/shard.h"
#include "ring/reduce/reduce.h"

namespace horo {
namespace {

constexpr std::size_t kPieceElements = 4096;  // processed together: all members' values of a piece stay in the cache

// The range of a tensor's elements that a member owns.
Shard part_of(const Codec& codec, const CodedTensor& tensor, int size, int member) {
  const auto n = static_cast<std::uint64_t>(size);
  const auto part = static_cast<int>((static_cast<std::uint64_t>(member) + n - tensor.name_hash % n) % n);
  const std::size_t block = codec.block();
  const std::size_t blocks = tensor.elements / block + (tensor.elements % block > 0 ? 1 : 0);
  const Shard cut = shard_of(blocks, size, part);
  const std::size_t begin = std::min(tensor.elements, cut.begin * block);
  return {begin, std::min(tensor.elements, begin + cut.size * block) - begin};
}

bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % alignof(float) == 0;
}

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

// Converts between a tensor's type and float32.
class Converter {
 public:
  Converter(DType dtype, double prescale) : dtype_(dtype), prescale_(prescale), bytes_(size_of(dtype)) {}

  std::size_t bytes() const { return bytes_; }

  // Returns prescale * in as float32: in `memory`, or the input itself if it needs no conversion.
  const float* widen(const std::byte* in, float* memory, std::size_t count) const {
    if (dtype_ == DType::kFloat64) {
      for (std::size_t i = 0; i < count; ++i) {
        double value;
        std::memcpy(&value, in + i * sizeof value, sizeof value);
        memory[i] = static_cast<float>(prescale_ * value);
      }
      return memory;
    }
    if (dtype_ == DType::kFloat32 && prescale_ == 1.0 && is_aligned(in)) return reinterpret_cast<const float*>(in);
    const TreeStep leaf{0};
    const TreeInput input{in, false};
    const Reduction reduction{dtype_, ReduceOp::kSum, {prescale_, 1.0, 1.0}, true};
    reduce_tree(reduction, {&leaf, 1}, {&input, 1}, reinterpret_cast<std::byte*>(memory), count);
    return memory;
  }

  // The output itself if it needs no conversion, so that a caller can decode to it; else null.
  float* direct(std::byte* out) const {
    return dtype_ == DType::kFloat32 && is_aligned(out) ? reinterpret_cast<float*>(out) : nullptr;
  }
  void narrow(const float* values, std::byte* out, std::size_t count) const {
    if (dtype_ == DType::kFloat64) {
      for (std::size_t i = 0; i < count; ++i) {
        const double value = static_cast<double>(values[i]);
        std::memcpy(out + i * sizeof value, &value, sizeof value);
      }
      return;
    }
    const TreeStep leaf{0};
    const TreeInput input{reinterpret_cast<const std::byte*>(values), true};
    reduce_tree({dtype_, ReduceOp::kSum, {}, false}, {&leaf, 1}, {&input, 1}, out, count);
  }

 private:
  const DType dtype_;
  const double prescale_;
  const std::size_t bytes_;
};

class CodedRun {
 public:
  CodedRun(Group& group, const Collective& collective, const Codec& codec, std::span<const CodedTensor> tensors,
           CodedScratch& scratch)
      : group_(group),
        collective_(collective),
        codec_(codec),
        tensors_(tensors),
        scratch_(scratch),
        convert_(collective.dtype, collective.prescale) {
    check();
    find_contributors();
    // A multiple of the block, so that pieces begin at block boundaries; or the longest tensor if that is shorter.
    std::size_t longest = 0;
    for (const CodedTensor& tensor : tensors) longest = std::max(longest, tensor.elements);
    piece_ = std::min(longest, std::max<std::size_t>(1, kPieceElements / codec.block()) * codec.block());
    scratch.pieces.resize(piece_ * (inputs_.size() + 1));
    for (int member = 0; member < group.size(); ++member) {
      begin_.push_back(total_);
      for (const CodedTensor& tensor : tensors) total_ += codec.wire_bytes(part(tensor, member).size);
    }
    begin_.push_back(total_);
    scratch.coded.resize(std::max(scratch.coded.size(), total_));
  }

  CodedReport run() {
    if (total_ == 0) return {};
    take_states();
    if (contributes()) encode_inputs();
    exchange();
    sum_own();
    spread();
    deliver();
    for (std::size_t t = 0; t < tensors_.size() && codec_.stateful(); ++t) {
      if (tensors_[t].state) std::swap(*tensors_[t].state, scratch_.states[t]);
    }
    return report_;
  }

 private:
  void expect(bool holds, const std::string& otherwise) const {
    if (!holds) throw std::invalid_argument(say("all_reduce of ", collective_.what, " with a codec: ", otherwise));
  }

  void check() const {
    expect(can_be_coded(collective_.kind, collective_.op, collective_.dtype),
           say(name_of(collective_.kind), " ", name_of(collective_.op), " of ", name_of(collective_.dtype),
               ", expected an all_reduce sum or average of float32, float64, float16 or bfloat16"));
    expect(collective_.contributors.size() == static_cast<std::size_t>(group_.size()),
           say("expected ", group_.size(), " contributor ids, got ", collective_.contributors.size()));
    expect(collective_.op != ReduceOp::kAverage || collective_.divisor != 0.0, "an average with divisor 0");
  }

  void find_contributors() {
    std::vector<std::int64_t> ids;
    for (int member = 0; member < group_.size(); ++member) {
      const std::int64_t id = collective_.contributors[static_cast<std::size_t>(member)];
      if (id == kAbsent) continue;
      expect(id >= 0 && (ids.empty() || id > ids.back()), "contributor ids must ascend from 0");
      ids.push_back(id);
      inputs_.push_back(member);
    }
    expect(!ids.empty(), "no member contributes");
    tree_ = canonical_tree(ids);
  }

  bool contributes() const { return std::find(inputs_.begin(), inputs_.end(), group_.rank()) != inputs_.end(); }
  Shard part(const CodedTensor& tensor, int member) const { return part_of(codec_, tensor, group_.size(), member); }
  std::size_t bytes_of(int member) const {
    const auto m = static_cast<std::size_t>(member);
    return begin_[m + 1] - begin_[m];
  }
  float* piece(std::size_t number) const { return scratch_.pieces.data() + number * piece_; }

  // Calls f(first element within the part, elements, first byte within the encoded part) for each piece of a part.
  template <class F>
  void for_pieces(std::size_t elements, F f) const {
    std::size_t byte = 0;
    for (std::size_t at = 0; at < elements; at += piece_) {
      const std::size_t count = std::min(piece_, elements - at);
      f(at, count, byte);
      byte += codec_.wire_bytes(count);
    }
  }

  template <class Call>
  void coding(const Call& call) const {
    try {
      call();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      throw std::runtime_error(
          say("codec '", codec_.name(), "' in the all_reduce of ", collective_.what, ": ", error.what()));
    }
  }

  // Copies the states. The copies replace the states when the call has succeeded.
  void take_states() {
    if (!codec_.stateful()) return;
    scratch_.states.resize(std::max(scratch_.states.size(), tensors_.size()));
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const CodedTensor& tensor = tensors_[t];
      CodedState& state = scratch_.states[t];
      state.size = group_.size();
      state.index = group_.rank();
      const CodedState none;
      const CodedState& before = tensor.state ? *tensor.state : none;
      const bool same_members = before.size == state.size && before.index == state.index;
      const std::size_t owned = part(tensor, group_.rank()).size;
      take(before.sender, tensor.elements, true, state.sender);
      take(before.owner, owned, same_members && before.sender.size() == tensor.elements, state.owner);
    }
  }

  void take(const std::vector<float>& before, std::size_t size, bool fits, std::vector<float>& now) {
    if (fits && before.size() == size) {
      now.assign(before.begin(), before.end());
      return;
    }
    now.assign(size, 0.0f);
    report_.dropped += before.size();
    report_.norm = std::hypot(report_.norm, norm_of(before));
  }

  void encode_inputs() {
    for (int member = 0; member < group_.size(); ++member) {
      std::byte* wire = scratch_.coded.data() + begin_[static_cast<std::size_t>(member)];
      for (std::size_t t = 0; t < tensors_.size(); ++t) {
        const Shard shard = part(tensors_[t], member);
        for_pieces(shard.size, [&](std::size_t at, std::size_t count, std::size_t byte) {
          const std::size_t first = shard.begin + at;
          const float* values = convert_.widen(tensors_[t].in + first * convert_.bytes(), piece(0), count);
          float* residual = codec_.stateful() ? scratch_.states[t].sender.data() + first : nullptr;
          coding([&] { codec_.encode(values, residual, wire + byte, count); });
        });
        wire += codec_.wire_bytes(shard.size);
      }
    }
  }

  Collective bytes_collective(CollectiveKind kind, std::uint64_t plan) const {
    Collective c;
    c.kind = kind;
    c.dtype = DType::kUint8;
    c.channel = collective_.channel;
    c.plan = plan;
    c.key_hash = collective_.key_hash;
    c.deadline = collective_.deadline;
    c.what = collective_.what;
    return c;
  }

  void exchange() {
    const auto n = static_cast<std::size_t>(group_.size());
    const std::size_t mine = bytes_of(group_.rank());
    scratch_.received.resize(std::max(scratch_.received.size(), mine * inputs_.size()));
    Collective c = bytes_collective(CollectiveKind::kAllToAll, collective_.plan);
    c.counts.assign(n * n, 0);
    for (const int sender : inputs_) {
      for (int owner = 0; owner < group_.size(); ++owner) {
        c.counts[static_cast<std::size_t>(sender) * n + static_cast<std::size_t>(owner)] = bytes_of(owner);
      }
    }
    c.in = {scratch_.coded.data(), contributes() ? total_ : 0};
    c.out = {scratch_.received.data(), mine * inputs_.size()};
    group_.run(c);
  }

  void sum_own() {
    const int me = group_.rank();
    const std::byte* wire = scratch_.received.data();
    std::byte* result = scratch_.coded.data() + begin_[static_cast<std::size_t>(me)];
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const Shard shard = part(tensors_[t], me);
      for_pieces(shard.size, [&](std::size_t at, std::size_t count, std::size_t byte) {
        float* sum = sum_piece(wire + byte, count);
        float* residual = codec_.stateful() ? scratch_.states[t].owner.data() + at : nullptr;
        coding([&] { codec_.encode(sum, residual, result + byte, count); });
      });
      wire += codec_.wire_bytes(shard.size);
      result += codec_.wire_bytes(shard.size);
    }
  }

  // `wire`: the encoded piece of the first contributor; those of the others follow at equal distances.
  float* sum_piece(const std::byte* wire, std::size_t count) const {
    std::vector<TreeInput> inputs;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      coding([&] { codec_.decode(wire + i * bytes_of(group_.rank()), piece(i), count); });
      inputs.push_back({reinterpret_cast<const std::byte*>(piece(i)), false});
    }
    float* sum = piece(inputs_.size());
    const Scaling scaling{1.0, collective_.postscale, collective_.divisor};
    reduce_tree({DType::kFloat32, collective_.op, scaling, false}, tree_, inputs, reinterpret_cast<std::byte*>(sum),
                count);
    return sum;
  }

  void spread() {
    Collective c = bytes_collective(CollectiveKind::kAllGather, collective_.plan + 1);
    for (int member = 0; member < group_.size(); ++member) c.counts.push_back(bytes_of(member));
    const auto me = static_cast<std::size_t>(group_.rank());
    c.in = {scratch_.coded.data() + begin_[me], bytes_of(group_.rank())};
    c.out = {scratch_.coded.data(), total_};
    group_.run(c);
  }

  void deliver() const {
    for (int member = 0; member < group_.size(); ++member) {
      const std::byte* wire = scratch_.coded.data() + begin_[static_cast<std::size_t>(member)];
      for (const CodedTensor& tensor : tensors_) {
        const Shard shard = part(tensor, member);
        for_pieces(shard.size, [&](std::size_t at, std::size_t count, std::size_t byte) {
          std::byte* out = tensor.out + (shard.begin + at) * convert_.bytes();
          float* direct = convert_.direct(out);
          float* values = direct ? direct : piece(0);
          coding([&] { codec_.decode(wire + byte, values, count); });
          if (!direct) convert_.narrow(values, out, count);
        });
        wire += codec_.wire_bytes(shard.size);
      }
    }
  }

  Group& group_;
  const Collective& collective_;
  const Codec& codec_;
  const std::span<const CodedTensor> tensors_;
  CodedScratch& scratch_;
  const Converter convert_;
  std::vector<int> inputs_;  // members that contribute
  std::vector<TreeStep> tree_;
  std::vector<std::size_t> begin_;  // by member: where the code of its parts begins, and the end
  std::size_t total_ = 0;
  std::size_t piece_ = 0;  // elements
  CodedReport report_;
};

}  // namespace

CodedReport run_coded(Group& group, const Collective& collective, const Codec& codec,
                      std::span<const CodedTensor> tensors, CodedScratch& scratch) {
  return CodedRun(group, collective, codec, tensors, scratch).run();
}

}  // namespace horo
