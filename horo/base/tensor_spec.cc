// Compares the specs of two ranks for one tensor, and writes the texts of Mismatch.
#include "horo/base/tensor_spec.h"

#include <cstdio>
#include <stdexcept>
#include <string_view>

#include "horo/base/collective_kind.h"

namespace horo {
namespace {

constexpr std::size_t kMaxElements = std::size_t{1} << 58;  // of 16 bytes each: the bytes fit into 63 bits

std::string against(std::string_view what, std::string_view a, std::string_view b) {
  std::string text(what);
  if (!text.empty()) text += ' ';
  return text.append(a).append(" against ").append(b);
}

// The shorter of two forms that distinguishes all doubles.
std::string text_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  double back = 0;
  if (std::sscanf(text, "%lf", &back) != 1 || back != value) std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

// The number of rows may differ between ranks.
bool is_uneven(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kGather ||
         kind == CollectiveKind::kScatter;
}

bool moves_nothing(CollectiveKind kind) {
  return kind == CollectiveKind::kBarrier || kind == CollectiveKind::kJoin || kind == CollectiveKind::kRebuild;
}

std::string in_words(const std::string& name, const char* none) {
  return name.empty() ? none : "'" + name + "'";
}

bool shapes_agree(const TensorSpec& a, const TensorSpec& b) {
  const bool is_equal = !is_uneven(a.kind) || (a.counts_known && a.splits.empty());
  if (is_equal || a.shape.empty() || b.shape.empty()) return a.shape == b.shape;
  return std::vector(a.shape.begin() + 1, a.shape.end()) == std::vector(b.shape.begin() + 1, b.shape.end());
}

std::string reduction_difference(const TensorSpec& a, const TensorSpec& b) {
  if (a.op != b.op) return against("", name_of(a.op), name_of(b.op));
  if (a.custom_op != b.custom_op)
    return against("operation", in_words(a.custom_op, "none"), in_words(b.custom_op, "none"));
  if (a.order != b.order) return against("order", name_of(a.order), name_of(b.order));
  if (a.prescale != b.prescale) return against("prescale", text_of(a.prescale), text_of(b.prescale));
  if (a.postscale != b.postscale) return against("postscale", text_of(a.postscale), text_of(b.postscale));
  if (a.codec != b.codec) return against("codec", in_words(a.codec, "none"), in_words(b.codec, "none"));
  if (a.splits != b.splits) return against("splits", text_of(a.splits), text_of(b.splits));
  if (a.round_stream == b.round_stream) return "";
  return against("round stream", std::to_string(a.round_stream), std::to_string(b.round_stream));
}

std::string counts_difference(const TensorSpec& a, const TensorSpec& b) {
  const auto in_words = [](const TensorSpec& spec) { return spec.counts_known ? "known" : "exchanged"; };
  if (a.counts_known != b.counts_known) return against("sizes", in_words(a), in_words(b));
  return a.splits == b.splits ? "" : against("splits", text_of(a.splits), text_of(b.splits));
}

std::string unit_difference(const TensorSpec& a, const TensorSpec& b) {
  if (a.unit != b.unit) return against("unit", in_words(a.unit, "none"), in_words(b.unit, "none"));
  if (a.unit_size == b.unit_size) return "";
  return against("a unit of", std::to_string(a.unit_size) + " tensors", std::to_string(b.unit_size));
}

}  // namespace

std::size_t TensorSpec::elements() const {
  std::size_t product = 1;
  std::size_t nonzero_product = 1;  // overflow counts even beside a zero: [2^40, 2^40, 0] is an error
  for (const std::int64_t dim : shape) {
    if (dim < 0) throw std::invalid_argument("tensor \"" + name + "\": negative dimension in shape " + text_of(shape));
    const auto size = static_cast<std::size_t>(dim);
    product *= size;
    if (size == 0) continue;
    if (nonzero_product > kMaxElements / size) {
      throw std::invalid_argument("tensor \"" + name + "\": shape " + text_of(shape) + " has more than 2^58 elements");
    }
    nonzero_product *= size;
  }
  return product;
}

std::size_t TensorSpec::bytes() const {
  return elements() * size_of(dtype);
}

std::string difference(const TensorSpec& a, const TensorSpec& b) {
  if (a.kind != b.kind) return against("", name_of(a.kind), name_of(b.kind));
  if (a.once != b.once) return against("", a.once ? "an unnamed tensor" : "a named one", b.once ? "unnamed" : "named");
  if (moves_nothing(a.kind)) return "";
  if (a.kind == CollectiveKind::kAddSet || a.kind == CollectiveKind::kRemoveSet) {
    if (a.shape != b.shape) return against("ranks", text_of(a.shape), text_of(b.shape));
    if (a.shrinks != b.shrinks) return against("shrinks", a.shrinks ? "true" : "false", b.shrinks ? "true" : "false");
    return a.set_name == b.set_name ? "" : against("name", in_words(a.set_name, "none"), in_words(b.set_name, "none"));
  }
  if (a.dtype != b.dtype) return against("", name_of(a.dtype), name_of(b.dtype));
  if (a.device != b.device) return against("device", name_of(a.device), name_of(b.device));
  if (has_root(a.kind) && a.root != b.root) return against("root", std::to_string(a.root), std::to_string(b.root));
  if (a.peer != b.peer) return against("receiver", std::to_string(a.peer), std::to_string(b.peer));
  if (reduces(a.kind)) {
    std::string text = reduction_difference(a, b);
    if (!text.empty()) return text;
  }
  if (is_uneven(a.kind)) {
    std::string text = counts_difference(a, b);
    if (!text.empty()) return text;
  }
  if (!shapes_agree(a, b)) return against("shape", text_of(a.shape), text_of(b.shape));
  if (a.priority != b.priority) return against("priority", std::to_string(a.priority), std::to_string(b.priority));
  return unit_difference(a, b);
}

std::string describe(const TensorSpec& spec) {
  std::string text(name_of(spec.kind));
  if (moves_nothing(spec.kind)) return text;
  if (reduces(spec.kind)) text.append(" ").append(name_of(spec.op));
  if (spec.kind == CollectiveKind::kBroadcast) text += " from root " + std::to_string(spec.root);
  if (spec.kind == CollectiveKind::kAddSet || spec.kind == CollectiveKind::kRemoveSet)
    return text + " " + text_of(spec.shape);
  if (spec.kind == CollectiveKind::kSendRecv) {
    text += " from " + std::to_string(spec.root) + " to " + std::to_string(spec.peer);
  }
  text.append(" ").append(name_of(spec.dtype)).append(" ").append(text_of(spec.shape));
  return spec.device == DeviceType::kHost ? text : text.append(" on ").append(name_of(spec.device));
}

}  // namespace horo
