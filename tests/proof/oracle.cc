#include "tests/proof/oracle.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numeric>

#include "horo/base/say.h"
#include "ring/codec/codec.h"
#include "ring/schedule/schedule_parts.h"

namespace horo::proof {
namespace {

using Kind = CollectiveKind;

constexpr int kHighestBit = 62;  // of an id

Arithmetic arithmetic_of(const Job& job) {
  return {job.dtype, job.op, {job.prescale, job.postscale, job.op == ReduceOp::kAverage ? job.divisor : 1.0}};
}

void append(Bytes& to, const Bytes& bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    text += kDigits[std::to_integer<unsigned>(bytes[i]) >> 4];
    text += kDigits[std::to_integer<unsigned>(bytes[i]) & 15];
  }
  return text;
}

}  // namespace

int mix(std::byte* accumulator, const std::byte* value, std::uint64_t count, std::size_t element_bytes, bool whole) {
  const std::vector<std::byte> before(accumulator, accumulator + count * element_bytes);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t other = whole ? count - 1 - i : i;
    std::uint64_t state = whole ? count : 7;
    for (std::size_t b = 0; b < element_bytes; ++b) {
      const auto left = std::to_integer<std::uint64_t>(before[i * element_bytes + b]);
      const auto right = std::to_integer<std::uint64_t>(value[other * element_bytes + b]);
      state = (state * 31 + left * 3 + right) ^ state >> 7;
      accumulator[i * element_bytes + b] = static_cast<std::byte>(state & 0xff);
    }
  }
  return 0;
}

Value canonical_sum(const Arithmetic& arithmetic, std::span<const std::int64_t> ids, std::span<const Value> values,
                    int bit) {
  if (ids.size() == 1) return values.front();
  const auto upper = std::find_if(ids.begin(), ids.end(), [bit](std::int64_t id) { return (id >> bit & 1) != 0; });
  const auto split = static_cast<std::size_t>(upper - ids.begin());
  if (split == 0 || split == ids.size()) return canonical_sum(arithmetic, ids, values, bit - 1);
  return arithmetic.join(canonical_sum(arithmetic, ids.first(split), values.first(split), bit - 1),
                         canonical_sum(arithmetic, ids.subspan(split), values.subspan(split), bit - 1));
}

Oracle::Oracle(const Job& job, std::size_t members)
    : job_(job), n_(members), element_bytes_(size_of(job.dtype)), arithmetic_(arithmetic_of(job)) {
  for (std::size_t i = 0; i < job.contributors.size(); ++i) {
    if (job.contributors[i] == kAbsent) continue;
    ids_.push_back(job.contributors[i]);
    contributors_.push_back(i);
  }
  draw_inputs();
  if (!reduces(job.kind) || !writes_output()) return;
  if (job.op == ReduceOp::kCustom) {
    sum_ = mixed(ids_, contributors_, kHighestBit);
  } else {
    job.codec.empty() ? sum_up() : sum_up_coded();
  }
}

bool Oracle::writes_output() const {
  return !reduces(job_.kind) || !ids_.empty();
}

std::size_t Oracle::begin(std::size_t count) const {
  return std::accumulate(job_.counts.begin(), job_.counts.begin() + static_cast<long>(count), std::size_t{0});
}

// Every member has a seed of its own, so that a smaller case has the first elements of the larger one.
void Oracle::draw_inputs() {
  for (std::size_t member = 0; member < n_; ++member) {
    Bytes& input = inputs_.emplace_back(input_count(member) * element_bytes_);
    std::mt19937_64 random(job_.values + member);
    for (std::size_t at = 0; at < input.size(); at += element_bytes_) {
      draw_element(input.data() + at, job_.dtype, job_.flavour, random);
    }
  }
}

std::size_t Oracle::input_count(std::size_t member) const {
  switch (job_.kind) {
    case Kind::kBarrier:
      return 0;
    case Kind::kAllGather:
    case Kind::kGather:
      return job_.counts[member];
    case Kind::kBroadcast:
    case Kind::kScatter:
      return is_root(member) ? total() : 0;
    case Kind::kAllToAll:
      return begin((member + 1) * n_) - begin(member * n_);
    default:
      return job_.contributors[member] == kAbsent ? 0 : total();
  }
}

std::size_t Oracle::output_bytes(std::size_t member) const {
  std::size_t count = 0;
  switch (job_.kind) {
    case Kind::kBarrier:
      break;
    case Kind::kAllToAll:
      for (std::size_t from = 0; from < n_; ++from) count += job_.counts[from * n_ + member];
      break;
    case Kind::kReduceScatter:
    case Kind::kScatter:
      count = job_.counts[member];
      break;
    case Kind::kReduce:
    case Kind::kGather:
      count = is_root(member) ? total() : 0;
      break;
    default:
      count = total();
  }
  return count * element_bytes_;
}

std::vector<Value> Oracle::terms_at(std::size_t element) const {
  std::vector<Value> terms;
  for (const std::size_t member : contributors_) {
    terms.push_back(arithmetic_.load(inputs_[member].data() + element * element_bytes_));
  }
  return terms;
}

void Oracle::sum_up() {
  sum_.resize(total() * element_bytes_);
  for (std::size_t i = 0; i < total(); ++i) {
    arithmetic_.store(canonical_sum(arithmetic_, ids_, terms_at(i)), sum_.data() + i * element_bytes_);
  }
}

// mix() in the canonical tree, over whole tensors.
Bytes Oracle::mixed(std::span<const std::int64_t> ids, std::span<const std::size_t> members, int bit) const {
  if (ids.size() == 1) return inputs_[members.front()];
  const auto upper = std::find_if(ids.begin(), ids.end(), [bit](std::int64_t id) { return (id >> bit & 1) != 0; });
  const auto split = static_cast<std::size_t>(upper - ids.begin());
  if (split == 0 || split == ids.size()) return mixed(ids, members, bit - 1);
  Bytes left = mixed(ids.first(split), members.first(split), bit - 1);
  const Bytes right = mixed(ids.subspan(split), members.subspan(split), bit - 1);
  mix(left.data(), right.data(), total(), element_bytes_, job_.whole);
  return left;
}

// The values after coding and decoding, as one piece and without a residual.
std::vector<float> Oracle::coded_and_back(std::vector<float> values) const {
  const auto codecs = built_in_codecs();
  const auto codec = std::find_if(codecs.begin(), codecs.end(), [&](const auto& c) { return c->name() == job_.codec; });
  std::vector<float> residual(values.size());
  Bytes wire((*codec)->wire_bytes(values.size()));
  (*codec)->encode(values.data(), (*codec)->stateful() ? residual.data() : nullptr, wire.data(), values.size());
  (*codec)->decode(wire.data(), values.data(), values.size());
  return values;
}

// C(postscale * (T(C(prescale * x)) / divisor)) in float32, where C codes and decodes.
void Oracle::sum_up_coded() {
  std::vector<std::vector<float>> terms;
  for (const std::size_t member : contributors_) {
    std::vector<float>& values = terms.emplace_back();
    for (std::size_t i = 0; i < total(); ++i) {
      values.push_back(static_cast<float>(arithmetic_.load(inputs_[member].data() + i * element_bytes_).re));
    }
    values = coded_and_back(values);
  }
  const double divisor = job_.op == ReduceOp::kAverage ? job_.divisor : 1.0;
  const Arithmetic single(DType::kFloat32, ReduceOp::kSum, {1.0, job_.postscale, divisor});
  std::vector<float> sums(total());
  for (std::size_t i = 0; i < total(); ++i) {
    std::vector<Value> values;
    for (const auto& term : terms) values.push_back({0, term[i]});
    single.store(canonical_sum(single, ids_, values), reinterpret_cast<std::byte*>(&sums[i]));
  }
  const Arithmetic plain(job_.dtype, ReduceOp::kSum, {});
  sum_.resize(total() * element_bytes_);
  sums = coded_and_back(sums);
  for (std::size_t i = 0; i < total(); ++i) plain.store({0, sums[i]}, sum_.data() + i * element_bytes_);
}

Bytes Oracle::part_of(const Bytes& bytes, std::size_t first, std::size_t count) const {
  const auto at = bytes.begin() + static_cast<long>(first * element_bytes_);
  return {at, at + static_cast<long>(count * element_bytes_)};
}

Bytes Oracle::expected(std::size_t member) const {
  Bytes bytes;
  switch (job_.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
      return output_bytes(member) > 0 ? sum_ : bytes;
    case Kind::kReduceScatter:
      return part_of(sum_, begin(member), job_.counts[member]);
    case Kind::kAllGather:
    case Kind::kGather:
      if (output_bytes(member) == 0) return bytes;
      for (const Bytes& input : inputs_) append(bytes, input);
      return bytes;
    case Kind::kScatter:
      return part_of(inputs_[static_cast<std::size_t>(job_.root)], begin(member), job_.counts[member]);
    case Kind::kBroadcast:
      return inputs_[static_cast<std::size_t>(job_.root)];
    case Kind::kAllToAll:
      for (std::size_t from = 0; from < n_; ++from) {
        const std::size_t pair = from * n_ + member;
        append(bytes, part_of(inputs_[from], begin(pair) - begin(from * n_), job_.counts[pair]));
      }
      return bytes;
    default:
      return bytes;
  }
}

std::string Oracle::judge(std::size_t member, std::span<const std::byte> output) const {
  const bool may_differ = job_.order == Order::kFast && job_.op != ReduceOp::kCustom;
  const bool any_order = reduces(job_.kind) && may_differ && !arithmetic_.is_exact_in_any_order();
  if (!any_order) return judge_bytes(expected(member), output);
  if (output.empty()) return "";
  return judge_bound(job_.kind == Kind::kReduceScatter ? begin(member) : 0, output);
}

std::string Oracle::judge_bytes(const Bytes& expected, std::span<const std::byte> output) const {
  for (std::size_t at = 0; at < expected.size(); at += element_bytes_) {
    const auto right = std::span(expected).subspan(at, element_bytes_), got = output.subspan(at, element_bytes_);
    if (!std::equal(right.begin(), right.end(), got.begin())) {
      return say("element ", at / element_bytes_, " is 0x", hex(got), ", expected 0x", hex(right));
    }
  }
  return "";
}

// Rounding is monotonic, so a result lies between the rounded least and greatest possible sums.
std::string Oracle::judge_number(double got, std::span<const double> terms, long double sum, long double slack) const {
  if (std::any_of(terms.begin(), terms.end(), [](double term) { return !std::isfinite(term); })) return "";
  const double a = arithmetic_.finished(sum - slack), b = arithmetic_.finished(sum + slack);
  const double width = 4 * arithmetic_.unit() * std::max(std::abs(a), std::abs(b));
  const double least = arithmetic_.rounded(std::min(a, b) - width);
  const double most = arithmetic_.rounded(std::max(a, b) + width);
  if (got >= least && got <= most) return "";
  return say("is ", got, ", expected ", static_cast<double>(sum), " before it is divided and rounded, from ", least,
             " to ", most);
}

std::string Oracle::judge_bound(std::size_t first, std::span<const std::byte> output) const {
  const bool adds = arithmetic_.op() != ReduceOp::kProduct;
  const Arithmetic plain(job_.dtype, ReduceOp::kSum, {});
  for (std::size_t at = 0; at < output.size(); at += element_bytes_) {
    std::complex<long double> product = 1;
    std::vector<double> re, im;
    for (const Value& term : terms_at(first + at / element_bytes_)) {
      re.push_back(term.re);
      im.push_back(term.im);
      product *= std::complex<long double>(term.re, term.im);
    }
    const Value got = plain.load(output.data() + at);
    // The greatest error of a product whose partial products become subnormal.
    const long double lost = 16 * arithmetic_.unit() * static_cast<double>(re.size()) * std::abs(product) + 0x1p-60L;
    const long double re_sum = adds ? std::accumulate(re.begin(), re.end(), 0.0L) : product.real();
    const long double im_sum = adds ? std::accumulate(im.begin(), im.end(), 0.0L) : product.imag();
    const std::string wrong = judge_number(got.re, re, re_sum, adds ? arithmetic_.slack(re) : lost) +
                              judge_number(got.im, im, im_sum, adds ? arithmetic_.slack(im) : lost);
    if (!wrong.empty()) return say("element ", at / element_bytes_, " ", wrong);
  }
  return "";
}

}  // namespace horo::proof
