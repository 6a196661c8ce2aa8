// A collective is checked completely before any byte is sent, so that a mistake of one caller does not leave the other
// members in the middle of a collective.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <stdexcept>

#include "horo/base/collective_kind.h"
#include "horo/base/say.h"
#include "ring/algorithms/messages.h"
#include "ring/reduce/custom_op.h"

namespace horo {
namespace {

class Checker {
 public:
  Checker(const Collective& c, int size, int index) : c_(c), size_(static_cast<std::size_t>(size)), index_(index) {}

  void run() const {
    expect(c_.in.device == kHostDevice && c_.out.device == kHostDevice, "this group runs on host memory alone");
    expect(c_.counts.size() == counts_expected(), "expected ", counts_expected(), " counts, got ", c_.counts.size());
    if (reduces(c_.kind)) check_reduction();
    if (has_root(c_.kind)) {
      expect(c_.root >= 0 && static_cast<std::size_t>(c_.root) < size_, "root ", c_.root, " of ", size_, " members");
    }
    if (!c_.pieces.empty()) return check_pieces();
    const BufferElements elements = this->elements();
    check_bytes("in", c_.in, elements.in);
    check_bytes("out", c_.out, elements.out);
    check_overlap(elements);
  }

  BufferElements elements() const {
    switch (c_.kind) {
      case CollectiveKind::kAllReduce:
        return {is_absent(c_, index_) ? 0 : c_.counts[0], c_.counts[0]};
      case CollectiveKind::kReduce:
        return {is_absent(c_, index_) ? 0 : c_.counts[0], is_root() ? c_.counts[0] : 0};
      case CollectiveKind::kReduceScatter:
        return {is_absent(c_, index_) ? 0 : total(), mine()};
      case CollectiveKind::kGather:
        return {mine(), is_root() ? total() : 0};
      case CollectiveKind::kScatter:
        return {is_root() ? total() : 0, mine()};
      case CollectiveKind::kAllToAll:
        return pairs();
      case CollectiveKind::kAllGather:
        return {mine(), total()};
      case CollectiveKind::kBroadcast:
        return {c_.root == index_ ? c_.counts[0] : 0, c_.counts[0]};
      case CollectiveKind::kSendRecv:
        expect(size_ == 2, "send_recv needs a group of 2 members, this one has ", size_, " members");
        return {is_root() ? c_.counts[0] : 0, is_root() ? 0 : c_.counts[0]};
      case CollectiveKind::kBarrier:
        return {};
      default:
        break;
    }
    expect(false, "not a kind of collective: ", static_cast<int>(c_.kind));
    return {};
  }

 private:
  bool is_root() const { return c_.root == index_; }

  std::size_t counts_expected() const {
    switch (c_.kind) {
      case CollectiveKind::kAllReduce:
      case CollectiveKind::kReduce:
      case CollectiveKind::kBroadcast:
      case CollectiveKind::kSendRecv:
        return 1;
      case CollectiveKind::kAllToAll:
        return size_ * size_;
      case CollectiveKind::kBarrier:
        return c_.counts.size();
      default:
        return size_;
    }
  }

  template <class... Parts>
  void expect(bool holds, const Parts&... otherwise) const {
    if (!holds) refuse(otherwise...);
  }

  template <class... Parts>
  [[noreturn, gnu::cold, gnu::noinline]] void refuse(const Parts&... otherwise) const {
    throw std::invalid_argument(say(name_of(c_.kind), c_.what.empty() ? "" : " of " + c_.what, ": ", otherwise...));
  }

  void check_reduction() const {
    expect(supports(c_.dtype, c_.op), name_of(c_.op), " is not defined for ", name_of(c_.dtype));
    expect(c_.contributors.size() == size_, "expected ", size_, " contributor ids, got ", c_.contributors.size());
    std::int64_t last = kAbsent;
    for (const std::int64_t id : c_.contributors) {
      if (id == kAbsent) continue;
      expect(id > last, "contributor id ", id, " after ", last, ", expected ascending ids from 0");
      last = id;
    }
    expect(c_.op != ReduceOp::kAdasum, "adasum is not an operation of a single collective (ring/group/adasum.h)");
    expect(c_.op != ReduceOp::kAverage || c_.divisor != 0.0, "an average with divisor 0");
    check_custom();
  }

  void check_custom() const {
    const bool is_custom = c_.op == ReduceOp::kCustom;
    expect(is_custom == (c_.custom != nullptr), is_custom ? "the operation is custom, but none is given"
                                                          : "a custom operation is given beside another operation");
    if (!is_custom) return;
    expect(c_.prescale == 1.0 && c_.postscale == 1.0, "operation '", c_.custom->name,
           "' does not support factors, prescale is ", c_.prescale, " and postscale ", c_.postscale, ", expected 1");
    horo::check(*c_.custom);
  }

  std::size_t total() const {
    std::size_t sum = 0;
    for (const std::size_t count : c_.counts) {
      expect(count <= SIZE_MAX - sum, "the sum of the counts exceeds the range of size_t");
      sum += count;
    }
    return sum;
  }
  std::size_t mine() const { return c_.counts[static_cast<std::size_t>(index_)]; }

  BufferElements pairs() const {
    total();
    BufferElements elements;
    const auto me = static_cast<std::size_t>(index_);
    for (std::size_t other = 0; other < size_; ++other) {
      elements.in += c_.counts[me * size_ + other];
      elements.out += c_.counts[other * size_ + me];
    }
    return elements;
  }

  void check_bytes(const char* name, const Buffer& buffer, std::size_t elements) const {
    const std::size_t bytes = elements * size_of(c_.dtype);
    expect(elements <= SIZE_MAX / size_of(c_.dtype) && buffer.bytes >= bytes, name, " has ", buffer.bytes,
           " bytes, expected ", elements, " elements of ", name_of(c_.dtype));
    expect(bytes == 0 || buffer.data != nullptr, name, " is null, expected ", bytes, " bytes");
  }

  void check_pieces() const {
    const std::size_t each = size_of(c_.dtype);
    std::size_t bytes = 0;
    for (const Piece& piece : c_.pieces) {
      expect(piece.bytes % each == 0, "a piece of ", piece.bytes, " bytes, expected whole elements of ", each);
      const bool is_there = piece.out != nullptr && (piece.in != nullptr || is_absent(c_, index_));
      expect(piece.bytes == 0 || is_there, "a piece of ", piece.bytes, " bytes has no address");
      bytes += piece.bytes;
    }
    expect(bytes == c_.counts[0] * each, "pieces of ", bytes, " bytes, expected ", c_.counts[0] * each);
  }

  // The bytes in use must be equal or disjoint. Kinds with one count per member may overlap in any way, because
  // needs_own_output() gives them a temporary output.
  void check_overlap(const BufferElements& elements) const {
    if (counts_expected() != 1) return;
    const std::less<const std::byte*> before;
    const std::byte* in_end = c_.in.data + elements.in * size_of(c_.dtype);
    const std::byte* out_end = c_.out.data + elements.out * size_of(c_.dtype);
    const bool overlap = elements.in > 0 && before(c_.in.data, out_end) && before(c_.out.data, in_end);
    expect(!overlap || c_.in.data == c_.out.data, "in and out overlap, expected them equal or disjoint");
  }

  const Collective& c_;
  std::size_t size_;
  int index_;
};

constexpr std::size_t kManyElements = SIZE_MAX / 64;  // times the bytes of any element fit into size_t

bool ascend(const std::vector<std::int64_t>& ids) {
  std::int64_t last = kAbsent;
  bool ascend = true;
  for (const std::int64_t id : ids) {
    ascend &= id > last;
    last = id;
  }
  return ascend;
}

// Recognizes a valid in-place sum or average, the usual case, with few instructions: the full check is a measurable
// part of a small all_reduce.
bool is_plain(const Collective& c, int size) {
  const bool is_mean = c.op == ReduceOp::kAverage;
  if (c.kind != CollectiveKind::kAllReduce || (c.op != ReduceOp::kSum && !is_mean) || c.custom != nullptr) return false;
  if (c.dtype == DType::kBool || (is_mean && c.divisor == 0.0) || !c.pieces.empty()) return false;
  if (c.in.device != kHostDevice || c.out.device != kHostDevice) return false;
  if (c.in.data == nullptr || c.in.data != c.out.data) return false;
  if (c.counts.size() != 1 || c.counts[0] > kManyElements) return false;
  const std::size_t bytes = c.counts[0] * size_of(c.dtype);
  if (bytes > c.in.bytes || bytes > c.out.bytes) return false;
  return c.contributors.size() == static_cast<std::size_t>(size) && ascend(c.contributors);
}

[[gnu::noinline]] void check_whole(const Collective& collective, int size, int index) {
  Checker(collective, size, index).run();
}

// The bytes of a member's buffers that the collective reads and writes.
struct Used {
  std::span<const std::byte> in, out;

  bool overlap() const {
    const std::less<const std::byte*> before;
    return !in.empty() && !out.empty() && before(in.data(), out.data() + out.size()) &&
           before(out.data(), in.data() + in.size());
  }
};

Used used_by(const GroupContext& context, const Collective& c) {
  const BufferElements elements = elements_of_buffers(c, context.size(), context.index);
  const std::size_t each = size_of(c.dtype);
  return {{c.in.data, elements.in * each}, {c.out.data, elements.out * each}};
}

// The first byte of this member's part in the output of an all_gather or gather.
std::size_t place_of_mine(const GroupContext& context, const Collective& c) {
  return std::accumulate(c.counts.begin(), c.counts.begin() + context.index, std::size_t{0}) * size_of(c.dtype);
}

}  // namespace

void check(const Collective& collective, int size, int index) {
  if (!is_plain(collective, size)) check_whole(collective, size, index);
}

BufferElements elements_of_buffers(const Collective& collective, int size, int index) {
  return Checker(collective, size, index).elements();
}

bool needs_own_output(const GroupContext& context, const Collective& c) {
  const Used used = used_by(context, c);
  switch (c.kind) {
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kScatter:
    case CollectiveKind::kAllToAll:
      return used.overlap();
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      return used.overlap() && used.in.data() != used.out.data() + place_of_mine(context, c);
    default:
      return false;
  }
}

}  // namespace horo
