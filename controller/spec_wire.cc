#include "controller/spec_wire.h"

#include <algorithm>
#include <stdexcept>

#include "horo/base/error.h"

namespace horo {
namespace {

constexpr std::uint8_t kOnce = 1;
constexpr std::uint8_t kStepwise = 2;
constexpr std::uint8_t kHasRounds = 4;
constexpr std::uint8_t kShrinks = 8;
constexpr std::uint8_t kByMembers = 16;
constexpr std::uint8_t kCountsKnown = 32;
constexpr std::uint8_t kOnCuda = 64;

std::uint32_t clamp_to_32_bits(std::size_t limit) {
  return static_cast<std::uint32_t>(std::min<std::size_t>(limit, UINT32_MAX - 1));
}

template <class T>
T expect_known(std::optional<T> value, const char* what, const std::string& name) {
  if (value) return *value;
  throw ProtocolError("tensor '" + name + "': unknown " + what);
}

void write_dims(ByteWriter& out, const std::vector<std::int64_t>& dims) {
  out.u32(static_cast<std::uint32_t>(dims.size()));
  for (const std::int64_t dim : dims) out.u64(static_cast<std::uint64_t>(dim));
}

std::vector<std::int64_t> read_dims(ByteReader& in, std::size_t most, const std::string& name) {
  const std::uint32_t dims = in.count(8);
  if (dims > most) {
    throw ProtocolError("tensor '" + name + "': " + std::to_string(dims) + " dimensions, at most " +
                        std::to_string(most) + " expected");
  }
  std::vector<std::int64_t> shape(dims);
  for (std::int64_t& dim : shape) dim = static_cast<std::int64_t>(in.u64());
  return shape;
}

}  // namespace

std::uint32_t id_limit(const CoordinatorConfig& config) {
  return clamp_to_32_bits(config.max_tensors);
}
std::uint32_t plan_limit(const CoordinatorConfig& config) {
  return clamp_to_32_bits(config.max_plans) + 1;
}

void write_name(ByteWriter& out, const TensorName& name) {
  out.u32(name.set);
  out.u32(name.channel);
  out.text(name.name);
}

TensorName read_name(ByteReader& in, const CoordinatorConfig& config) {
  TensorName name;
  name.set = in.u32();
  name.channel = in.u32();
  name.name = in.text(config.max_name_bytes);
  return name;
}

void write_spec(ByteWriter& out, const TensorSpec& spec) {
  write_name(out, name_of(spec));
  out.u8(static_cast<std::uint8_t>((spec.once ? kOnce : 0) | (spec.stepwise ? kStepwise : 0) |
                                   (spec.round_stream != 0 ? kHasRounds : 0) | (spec.shrinks ? kShrinks : 0) |
                                   (spec.by_members ? kByMembers : 0) | (spec.counts_known ? kCountsKnown : 0) |
                                   (spec.device == DeviceType::kCuda ? kOnCuda : 0)));
  out.u8(static_cast<std::uint8_t>(spec.kind));
  out.u8(static_cast<std::uint8_t>(spec.op));
  out.u8(static_cast<std::uint8_t>(spec.dtype));
  out.u8(static_cast<std::uint8_t>(spec.order));
  out.u32(static_cast<std::uint32_t>(spec.root));
  out.u32(static_cast<std::uint32_t>(spec.peer));
  out.f64(spec.prescale);
  out.f64(spec.postscale);
  write_dims(out, spec.shape);
  write_dims(out, spec.splits);
  out.text(spec.set_name);
  out.text(spec.codec);
  out.text(spec.custom_op);
  out.text(spec.unit);
  out.u32(static_cast<std::uint32_t>(spec.unit_size));
  out.u32(static_cast<std::uint32_t>(spec.priority));
  if (spec.round_stream != 0) out.u64(spec.round_stream);
}

TensorSpec read_spec(ByteReader& in, const CoordinatorConfig& config) {
  TensorSpec spec;
  const auto ranks = static_cast<std::size_t>(config.size);
  const TensorName name = read_name(in, config);
  spec.set = name.set;
  spec.channel = name.channel;
  spec.name = name.name;
  const std::uint8_t flags = in.u8();
  spec.once = (flags & kOnce) != 0;
  spec.stepwise = (flags & kStepwise) != 0;
  spec.shrinks = (flags & kShrinks) != 0;
  spec.by_members = (flags & kByMembers) != 0;
  spec.counts_known = (flags & kCountsKnown) != 0;
  if ((flags & kOnCuda) != 0) spec.device = DeviceType::kCuda;
  spec.kind = expect_known(collective_kind_from(in.u8()), "kind of collective", spec.name);
  spec.op = expect_known(reduce_op_from(in.u8()), "reduction", spec.name);
  spec.dtype = expect_known(dtype_from(in.u8()), "element type", spec.name);
  spec.order = expect_known(order_from(in.u8()), "order of summation", spec.name);
  spec.root = static_cast<int>(in.u32());
  spec.peer = static_cast<int>(in.u32());
  spec.prescale = in.f64();
  spec.postscale = in.f64();
  const bool of_ranks = spec.kind == CollectiveKind::kAddSet;
  spec.shape = read_dims(in, of_ranks ? ranks : config.max_dims, spec.name);
  spec.splits = read_dims(in, ranks, spec.name);
  spec.set_name = in.text(config.max_name_bytes);
  spec.codec = in.text(config.max_name_bytes);
  spec.custom_op = in.text(config.max_name_bytes);
  spec.unit = in.text(config.max_name_bytes);
  spec.unit_size = static_cast<int>(in.u32());
  spec.priority = static_cast<std::int32_t>(in.u32());
  if ((flags & kHasRounds) != 0 && (spec.round_stream = in.u64()) == 0) {
    throw ProtocolError("tensor '" + spec.name + "': round stream 0");
  }
  if (of_ranks) return spec;
  try {
    static_cast<void>(spec.bytes());
  } catch (const std::invalid_argument& error) {
    throw ProtocolError(error.what());
  }
  return spec;
}

}  // namespace horo
