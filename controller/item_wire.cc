#include "controller/item_wire.h"

#include "controller/id_set.h"
#include "controller/list_wire.h"
#include "controller/spec_wire.h"
#include "horo/base/error.h"

namespace horo {
namespace {

constexpr std::size_t kMaxTextBytes = 1 << 20;
constexpr std::uint8_t kHasName = 1;
constexpr std::uint8_t kHasId = 2;
constexpr std::uint8_t kReportsDone = 0x80;  // added to the kind of a release
constexpr std::uint8_t kHasLast = 0x40;      // the same; LastReady follows the item

enum class ItemKind : std::uint8_t {
  kReleaseTensors = 0,
  kSkipTensors = 1,
  kReleasePlan = 2,
  kDefinePlan = 3,
  kDissolvePlan = 4,
  kFailTensors = 5,
  kRequestDiagnosis = 6,
  kReleaseToRanks = 7,
  kDefineSet = 8,
  kEndSet = 9,
  kJoinOver = 10,
  kSkipToRanks = 11,
  kFailOnRanks = 12,
  kForgetTensors = 13,
};

std::vector<int> read_ranks(ByteReader& in, const CoordinatorConfig& config) {
  return read_ascending<int>(in, static_cast<std::uint32_t>(config.size), "rank");
}

std::vector<int> read_some_ranks(ByteReader& in, const CoordinatorConfig& config) {
  std::vector<int> ranks = read_ranks(in, config);
  if (ranks.empty()) throw ProtocolError("a release, failure or process set of no ranks");
  return ranks;
}

void write_ref(ByteWriter& out, const TensorRef& ref) {
  out.u8(static_cast<std::uint8_t>((ref.name ? kHasName : 0) | (ref.id ? kHasId : 0)));
  if (ref.name) write_name(out, *ref.name);
  if (ref.id) out.u32(*ref.id);
}

TensorRef read_ref(ByteReader& in, const CoordinatorConfig& config) {
  TensorRef ref;
  const std::uint8_t has = in.u8();
  if (has == 0 || has > (kHasName | kHasId)) throw ProtocolError("a tensor with neither name nor number");
  if ((has & kHasName) != 0) ref.name = read_name(in, config);
  if ((has & kHasId) != 0) ref.id = read_below(in, id_limit(config), "tensor");
  return ref;
}

void write_refs(ByteWriter& out, const std::vector<TensorRef>& refs) {
  out.u32(static_cast<std::uint32_t>(refs.size()));
  for (const TensorRef& ref : refs) write_ref(out, ref);
}

std::vector<TensorRef> read_refs(ByteReader& in, const CoordinatorConfig& config) {
  std::vector<TensorRef> refs(in.count(5));
  if (refs.empty()) throw ProtocolError("a release of no tensors");
  for (TensorRef& ref : refs) ref = read_ref(in, config);
  return refs;
}

struct ItemWriter {
  ByteWriter& out;

  void kind(ItemKind kind) const { out.u8(static_cast<std::uint8_t>(kind)); }
  template <class Item>
  void kind_of_release(ItemKind kind, const Item& item) const {
    const unsigned flags = (item.reports_done ? kReportsDone : 0U) | (item.last.rank >= 0 ? kHasLast : 0U);
    out.u8(static_cast<std::uint8_t>(static_cast<unsigned>(kind) | flags));
  }
  void last(const LastReady& last) const {
    if (last.rank < 0) return;
    out.varint(static_cast<std::uint64_t>(last.rank));
    out.varint(last.hold_us);
  }
  void operator()(const ReleaseTensors& item) const {
    kind_of_release(item.ranks.empty() ? ItemKind::kReleaseTensors : ItemKind::kReleaseToRanks, item);
    write_refs(out, item.tensors);
    write_list(out, item.absent_ranks);
    if (!item.ranks.empty()) write_list(out, item.ranks);
    last(item.last);
  }
  void operator()(const SkipTensors& item) const {
    kind(item.ranks.empty() ? ItemKind::kSkipTensors : ItemKind::kSkipToRanks);
    write_refs(out, item.tensors);
    if (!item.ranks.empty()) write_list(out, item.ranks);
  }
  void operator()(const ReleasePlan& item) const {
    kind_of_release(ItemKind::kReleasePlan, item);
    out.u32(item.plan);
    out.u32(static_cast<std::uint32_t>(item.exceptions.size()));
    for (const SlotAbsence& absence : item.exceptions) {
      out.u32(absence.slot);
      write_list(out, absence.ranks);
    }
    last(item.last);
  }
  void operator()(const DefinePlan& item) const {
    kind(ItemKind::kDefinePlan);
    out.u32(item.plan);
    write_list(out, item.tensors);
  }
  void operator()(const DissolvePlan& item) const {
    kind(ItemKind::kDissolvePlan);
    out.u32(item.plan);
  }
  void operator()(const FailTensors& item) const {
    kind(item.ranks.empty() ? ItemKind::kFailTensors : ItemKind::kFailOnRanks);
    out.u32(static_cast<std::uint32_t>(item.tensors.size()));
    for (const FailTensors::Tensor& tensor : item.tensors) {
      write_name(out, tensor.name);
      out.u8(static_cast<std::uint8_t>((tensor.once ? 1 : 0) + (tensor.lost ? 2 : 0)));
      out.text(std::string_view(tensor.head).substr(0, kMaxTextBytes));
    }
    out.text(std::string_view(item.text).substr(0, kMaxTextBytes));
    write_list(out, item.missing);
    if (!item.ranks.empty()) write_list(out, item.ranks);
  }
  void operator()(const RequestDiagnosis& item) const {
    kind(ItemKind::kRequestDiagnosis);
    out.u64(item.question);
  }
  void operator()(const DefineSet& item) const {
    kind(ItemKind::kDefineSet);
    write_ref(out, item.tensor);
    out.u32(item.set);
    out.text(item.name);
    write_list(out, item.ranks);
    out.u8(static_cast<std::uint8_t>((item.shrinks ? 1 : 0) + (item.by_members ? 2 : 0)));
  }
  void operator()(const EndSet& item) const {
    kind(ItemKind::kEndSet);
    write_ref(out, item.tensor);
    out.u32(item.set);
  }
  void operator()(const JoinOver& item) const {
    kind(ItemKind::kJoinOver);
    out.u32(item.set);
    out.u32(static_cast<std::uint32_t>(item.last));
    out.text(std::string_view(item.text).substr(0, kMaxTextBytes));
  }
  void operator()(const ForgetTensors& item) const {
    kind(ItemKind::kForgetTensors);
    std::vector<TensorId> ids = item.tensors;
    write_ids(out, ids);
  }
};

ReleasePlan read_release_plan(ByteReader& in, const CoordinatorConfig& config) {
  ReleasePlan item{read_plan(in, config), {}};
  item.exceptions.resize(in.count(8));
  for (std::size_t i = 0; i < item.exceptions.size(); ++i) {
    SlotAbsence& absence = item.exceptions[i];
    absence.slot = read_below(in, id_limit(config), "slot");
    absence.ranks = read_ranks(in, config);
    if (absence.ranks.empty()) throw ProtocolError("an absent tensor of a plan that is absent on no rank");
    if (i > 0 && absence.slot <= item.exceptions[i - 1].slot)
      throw ProtocolError("a list of slots that does not ascend");
  }
  return item;
}

DefinePlan read_define_plan(ByteReader& in, const CoordinatorConfig& config) {
  DefinePlan item{read_plan(in, config), {}};
  item.tensors.resize(in.count(4));
  if (item.tensors.empty()) throw ProtocolError("a plan of no tensors");
  for (TensorId& id : item.tensors) id = read_below(in, id_limit(config), "tensor");
  return item;
}

FailTensors read_fail_tensors(ByteReader& in, const CoordinatorConfig& config, bool on_ranks) {
  constexpr std::size_t kLeastTensorBytes = 17;
  FailTensors item;
  item.tensors.resize(in.count(kLeastTensorBytes));
  if (item.tensors.empty()) throw ProtocolError("a failure of no tensors");
  for (FailTensors::Tensor& tensor : item.tensors) {
    tensor.name = read_name(in, config);
    const std::uint8_t flags = in.u8();
    tensor.once = (flags & 1) != 0;
    tensor.lost = (flags & 2) != 0;
    tensor.head = in.text(kMaxTextBytes);
  }
  item.text = in.text(kMaxTextBytes);
  item.missing = read_ranks(in, config);
  if (on_ranks) item.ranks = read_some_ranks(in, config);
  return item;
}

ReleaseTensors read_release(ByteReader& in, const CoordinatorConfig& config, bool among) {
  ReleaseTensors item{read_refs(in, config), {}};
  item.absent_ranks = read_ranks(in, config);
  if (!among) return item;
  item.ranks = read_some_ranks(in, config);
  return item;
}

SkipTensors read_skip(ByteReader& in, const CoordinatorConfig& config, bool among) {
  SkipTensors item{read_refs(in, config)};
  if (among) item.ranks = read_some_ranks(in, config);
  return item;
}

DefineSet read_define_set(ByteReader& in, const CoordinatorConfig& config) {
  DefineSet item;
  item.tensor = read_ref(in, config);
  item.set = in.u32();
  item.name = in.text(config.max_name_bytes);
  item.ranks = read_some_ranks(in, config);
  const std::uint8_t flags = in.u8();
  item.shrinks = (flags & 1) != 0;
  item.by_members = (flags & 2) != 0;
  return item;
}

JoinOver read_join_over(ByteReader& in, const CoordinatorConfig& config) {
  JoinOver item;
  item.set = in.u32();
  item.last = static_cast<int>(read_below(in, static_cast<std::uint32_t>(config.size), "rank"));
  item.text = in.text(kMaxTextBytes);
  return item;
}

ForgetTensors read_forget_tensors(ByteReader& in, const CoordinatorConfig& config) {
  ForgetTensors item{read_ids(in, id_limit(config))};
  if (item.tensors.empty()) throw ProtocolError("an item that forgets no tensors");
  return item;
}

LastReady read_last(ByteReader& in, const CoordinatorConfig& config) {
  const std::uint64_t rank = in.varint();
  if (rank >= static_cast<std::uint64_t>(config.size)) throw ProtocolError("a last rank that does not exist");
  return {static_cast<int>(rank), in.varint()};
}

DownItem read_plain_item(ByteReader& in, ItemKind kind, const CoordinatorConfig& config) {
  switch (kind) {
    case ItemKind::kReleaseTensors:
      return read_release(in, config, false);
    case ItemKind::kReleaseToRanks:
      return read_release(in, config, true);
    case ItemKind::kSkipTensors:
      return read_skip(in, config, false);
    case ItemKind::kSkipToRanks:
      return read_skip(in, config, true);
    case ItemKind::kReleasePlan:
      return read_release_plan(in, config);
    case ItemKind::kDefinePlan:
      return read_define_plan(in, config);
    case ItemKind::kDissolvePlan:
      return DissolvePlan{read_plan(in, config)};
    case ItemKind::kFailTensors:
      return read_fail_tensors(in, config, false);
    case ItemKind::kFailOnRanks:
      return read_fail_tensors(in, config, true);
    case ItemKind::kRequestDiagnosis:
      return RequestDiagnosis{in.u64()};
    case ItemKind::kDefineSet:
      return read_define_set(in, config);
    case ItemKind::kEndSet:
      return EndSet{read_ref(in, config), in.u32()};
    case ItemKind::kJoinOver:
      return read_join_over(in, config);
    case ItemKind::kForgetTensors:
      return read_forget_tensors(in, config);
  }
  throw ProtocolError("an item of an unknown kind");
}

}  // namespace

void write_item(ByteWriter& out, const DownItem& item) {
  std::visit(ItemWriter{out}, item);
}

DownItem read_item(ByteReader& in, const CoordinatorConfig& config) {
  const std::uint8_t kind = in.u8();
  const auto flags = static_cast<std::uint8_t>(kind & (kReportsDone | kHasLast));
  DownItem item = read_plain_item(in, static_cast<ItemKind>(kind ^ flags), config);
  if (flags == 0) return item;
  const auto read_flags = [&](auto& release) {
    release.reports_done = (flags & kReportsDone) != 0;
    if ((flags & kHasLast) != 0) release.last = read_last(in, config);
  };
  if (auto* release = std::get_if<ReleaseTensors>(&item)) {
    read_flags(*release);
  } else if (auto* plan = std::get_if<ReleasePlan>(&item)) {
    read_flags(*plan);
  } else {
    throw ProtocolError("an item that is no release and must report its end, or has a last rank");
  }
  return item;
}

}  // namespace horo
