// Each part of the contract is a function that reports the first violation, so that one mistake gives one finding. All
// buffers have guard bytes around them, odd addresses, and two different initial contents.

#include "tools/horo/conformance/codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>

#include "horo/base/say.h"
#include "tools/horo/conformance/guarded.h"

namespace horo::tools {
namespace {

using Floats = std::vector<float>;

constexpr std::byte kGuard{0xa5};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::span<const std::byte> bytes_of(const Floats& values) {
  return std::as_bytes(std::span(values));
}

float* floats_in(GuardedMemory& memory) {
  return reinterpret_cast<float*>(memory.data());
}

Floats values_in(GuardedMemory& memory, std::size_t count) {
  return {floats_in(memory), floats_in(memory) + count};
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

class Checker {
 public:
  Checker(const Codec& codec, const CodecClaim& claim) : codec_(codec), claim_(claim), block_(codec.block()) {}

  std::vector<std::string> run() {
    attempt("sizes", &Checker::sizes);
    if (!findings_.empty()) return findings_;
    attempt("memory", &Checker::memory);
    attempt("pieces", &Checker::pieces);
    attempt("errors", &Checker::errors);
    attempt("zeros", &Checker::zeros);
    attempt("values that are not finite", &Checker::not_finite);
    attempt("any bytes", &Checker::any_bytes);
    if (codec_.stateful()) attempt("error feedback", &Checker::feedback);
    return findings_;
  }

 private:
  struct Code {
    Bytes wire;
    Floats residual;
  };

  void attempt(const char* what, bool (Checker::*check)()) {
    try {
      (this->*check)();
    } catch (const std::exception& error) {
      find(say(what, ": it threw: ", error.what()));
    }
  }

  bool find(std::string text) {
    if (std::find(findings_.begin(), findings_.end(), text) == findings_.end()) findings_.push_back(std::move(text));
    return false;
  }

  std::vector<std::size_t> some_sizes() const {
    std::vector<std::size_t> sizes{0,   1, 2, 3, block_ / 2, block_ - 1, block_, block_ + 1, 2 * block_, 3 * block_ + 1,
                                   1000};
    sizes.push_back(2 * block_ + block_ / 2 + 1);
    return sizes;
  }

  Code encode(const Floats& x, const Floats& residual, std::size_t offset = 0, std::byte past = {}) {
    GuardedMemory in(bytes_of(x), 0, kGuard), kept(bytes_of(residual), 0, kGuard);
    GuardedMemory wire(codec_.wire_bytes(x.size()), offset, kGuard, past);
    codec_.encode(floats_in(in), codec_.stateful() ? floats_in(kept) : nullptr, wire.data(), x.size());
    if (!wire.is_intact()) find(say("encode() of ", x.size(), " elements wrote outside of its wire_bytes()"));
    if (!kept.is_intact()) find(say("encode() of ", x.size(), " elements wrote outside of their residual"));
    if (!in.is_intact() || !same_bits(values_in(in, x.size()), x)) find("encode() changed its input");
    return {wire.contents(), values_in(kept, residual.size())};
  }
  Code encode(const Floats& x) { return encode(x, Floats(x.size(), 0.0f)); }

  Floats decode(const Bytes& bytes, std::size_t count, std::size_t offset = 0, std::byte past = {}) {
    GuardedMemory wire(bytes, offset, kGuard), out(count * sizeof(float), 0, kGuard, past);
    codec_.decode(wire.data(), floats_in(out), count);
    if (!out.is_intact()) find(say("decode() of ", count, " elements wrote outside of them"));
    if (!wire.is_intact() || wire.contents() != bytes) find("decode() changed the bytes of its input");
    return values_in(out, count);
  }

  // Values of magnitudes between 2^low and 2^high, and some zeros.
  Floats random_values(std::size_t count, int low, int high) {
    Floats values;
    for (std::size_t i = 0; i < count; ++i) {
      const auto fraction = static_cast<double>(random_() >> 11) * 0x1p-53;
      const double exponent = low + (high - low) * (static_cast<double>(random_() >> 11) * 0x1p-53);
      const double value = (1 + fraction) * std::exp2(exponent);
      values.push_back(random_() % 64 == 0 ? 0.0f : static_cast<float>(random_() % 2 == 0 ? value : -value));
    }
    return values;
  }

  bool sizes() {
    if (block_ == 0 || block_ > Codec::kMaxBlock) {
      return find(say("block() is ", block_, ", expected 1 to ", Codec::kMaxBlock));
    }
    if (codec_.name().empty()) return find("it has no name");
    if (codec_.wire_bytes(0) != 0) return find(say("wire_bytes(0) is ", codec_.wire_bytes(0), ", expected 0"));
    for (const std::size_t count : some_sizes()) {
      const std::size_t expected = count / block_ * codec_.wire_bytes(block_) + codec_.wire_bytes(count % block_);
      if (codec_.wire_bytes(count) != expected) {
        return find(say("wire_bytes(", count, ") is ", codec_.wire_bytes(count), ", expected ", expected,
                        ": that of its blocks of ", block_));
      }
    }
    return true;
  }

  // encode() and decode() give the same results for any initial contents and address of their buffers.
  bool memory() {
    for (const std::size_t count : some_sizes()) {
      const Floats x = random_values(count, -4, 4), residual(count, 0.0f);
      const Code first = encode(x, residual);
      for (std::size_t offset = 0; offset < 8; ++offset) {
        const auto past = offset % 2 == 0 ? std::byte{0xff} : std::byte{0x01};
        const Code again = encode(x, residual, offset, past);
        if (again.wire != first.wire) {
          return find(say("encode() of ", count,
                          " elements is not repeatable: its bytes depend on their address or "
                          "on earlier contents, or are not all written"));
        }
        if (!same_bits(again.residual, first.residual)) return find("the residual of encode() is not repeatable");
        if (!same_bits(decode(first.wire, count, offset, past), decode(first.wire, count))) {
          return find(say("decode() of ", count, " elements is not repeatable, or does not write all of them"));
        }
      }
    }
    return true;
  }

  // The code of a block does not depend on other blocks.
  bool pieces() {
    const std::size_t count = 4 * block_ + block_ / 2;
    const Floats x = random_values(count, -4, 4), residual = random_values(count, -8, -6);
    const Code whole = encode(x, residual);
    const Floats back = decode(whole.wire, count);
    Code joined;
    Floats out;
    for (std::size_t at = 0; at < count; at += block_) {
      const auto from = static_cast<std::ptrdiff_t>(at);
      const auto to = static_cast<std::ptrdiff_t>(std::min(count, at + block_));
      const Code code = encode({x.begin() + from, x.begin() + to}, {residual.begin() + from, residual.begin() + to});
      joined.wire.insert(joined.wire.end(), code.wire.begin(), code.wire.end());
      joined.residual.insert(joined.residual.end(), code.residual.begin(), code.residual.end());
      const Floats values = decode(code.wire, static_cast<std::size_t>(to - from));
      out.insert(out.end(), values.begin(), values.end());
    }
    if (joined.wire != whole.wire || (codec_.stateful() && !same_bits(joined.residual, whole.residual))) {
      return find("encode() of a tensor is not the concatenation of its blocks");
    }
    return same_bits(out, back) || find("decode() of a tensor is not the concatenation of its blocks");
  }

  // The magnitude of the largest finite value in the block of element i.
  double largest_beside(const Floats& x, std::size_t i) const {
    double largest = 0;
    const std::size_t begin = i / block_ * block_;
    for (std::size_t k = begin; k < std::min(x.size(), begin + block_); ++k) {
      if (std::isfinite(x[k])) largest = std::max(largest, std::fabs(static_cast<double>(x[k])));
    }
    return largest;
  }
  double allowed(double value, double beside) const {
    return claim_.relative * std::fabs(value) + claim_.of_block * beside + claim_.absolute;
  }

  bool is_near(const Floats& x, const Floats& back, std::size_t i) {
    const auto value = static_cast<double>(x[i]), got = static_cast<double>(back[i]);
    const double bound = allowed(value, largest_beside(x, i));
    if (std::fabs(got - value) <= bound) return true;
    return find(say("element ", i, " of ", x.size(), " was ", value, " and came back as ", got,
                    ": expected an error of at most ", bound));
  }

  bool errors() {
    constexpr int kRanges[][2] = {{0, 0}, {-3, 3}, {-24, 12}, {-60, -30}, {-149, -120}, {20, 60}, {-126, 127}};
    for (const auto& range : kRanges) {
      for (const std::size_t count : some_sizes()) {
        Floats x = random_values(count, range[0], range[1]);
        const auto most = static_cast<float>(claim_.largest);
        for (float& value : x) value = std::clamp(value, -most, most);
        if (count > 2) x[count / 2] = range[1] > 100 ? most : x[count / 2];
        const Floats back = decode(encode(x).wire, count);
        for (std::size_t i = 0; i < count; ++i) {
          if (!is_near(x, back, i)) return false;
        }
      }
    }
    return true;
  }

  bool zeros() {
    for (const std::size_t count : some_sizes()) {
      const Code code = encode(Floats(count, 0.0f));
      for (const float value : decode(code.wire, count)) {
        if (value != 0.0f) return find(say("zeros came back as ", value));
      }
      for (const float lost : code.residual) {
        if (lost != 0.0f) return find(say("zeros left a residual of ", lost));
      }
    }
    return true;
  }

  // A NaN or an infinity stays one; other blocks and the residual are not affected.
  bool not_finite() {
    for (const float value : {kNan, -kNan, kInfinity, -kInfinity}) {
      for (const std::size_t at : {std::size_t{0}, block_ / 2, block_ - 1}) {
        Floats x = random_values(2 * block_, -2, 2);
        x[at] = value;
        const Code code = encode(x);
        const Floats back = decode(code.wire, x.size());
        if (std::isfinite(back[at])) return find(say(value, " came back as ", back[at]));
        if (std::isinf(back[at]) && !(back[at] == value)) return find(say(value, " came back as ", back[at]));
        for (std::size_t i = block_; i < x.size(); ++i) {
          if (!is_near(x, back, i)) return find(say("a block suffers from ", value, " in another one"));
        }
        for (const float lost : code.residual) {
          if (!std::isfinite(lost)) return find(say(value, " left a residual of ", lost, ", expected 0"));
        }
      }
    }
    return true;
  }

  bool any_bytes() {
    for (int round = 0; round < 64; ++round) {
      const std::size_t count = 1 + random_() % (3 * block_);
      Bytes wire;
      for (std::size_t i = 0; i < codec_.wire_bytes(count); ++i) wire.push_back(static_cast<std::byte>(random_()));
      if (!same_bits(decode(wire, count), decode(wire, count, 3, std::byte{0xff}))) {
        return find("decode() of noise is not repeatable");
      }
    }
    return true;
  }

  // The sum of the decoded values over all steps and the last residual add up to the sum of the inputs.
  bool feedback() {
    constexpr int kSteps = 40;
    const std::size_t count = 2 * block_ + 1;
    std::vector<double> wanted(count, 0.0), sent(count, 0.0);
    Floats residual(count, 0.0f);
    for (int step = 0; step < kSteps; ++step) {
      const Floats x = random_values(count, -6, 0);
      const Code code = encode(x, residual);
      const Floats back = decode(code.wire, count);
      residual = code.residual;
      for (std::size_t i = 0; i < count; ++i) {
        wanted[i] += static_cast<double>(x[i]);
        sent[i] += static_cast<double>(back[i]);
      }
    }
    constexpr double kMost = 2.0;                                      // of one value
    const double rounding = kSteps * 4 * kMost * 0x1p-24;              // of float32, in each step
    const double kept = 2 * allowed(2 * kMost, 2 * kMost) + rounding;  // more than the error of one step
    for (std::size_t i = 0; i < count; ++i) {
      const auto left = static_cast<double>(residual[i]);
      if (!(std::fabs(sent[i] + left - wanted[i]) <= rounding)) {
        return find(say("error feedback: after ", kSteps, " steps ", sent[i], " was sent and ", left, " remains of ",
                        wanted[i], ", expected them to add up"));
      }
      if (!(std::fabs(left) <= kept)) return find(say("error feedback: the residual grows, to ", left));
    }
    return true;
  }

  const Codec& codec_;
  const CodecClaim claim_;
  const std::size_t block_;
  std::mt19937_64 random_{20'260'101};
  std::vector<std::string> findings_;
};

}  // namespace

CodecClaim claim_of_built_in(const std::string& name) {
  if (name == "fp16") return {0x1p-11, 0, 0x1p-25, 65504};
  if (name == "bf16") return {0x1p-8, 0, 0x1p-134, 0x1.fep127};
  if (name == "fp8") return {0x1p-4, 0x1p-10 / 224, 0x1p-136, FLT_MAX};
  if (name == "int8") return {0, 0.50001 / 127, 0x1p-127, FLT_MAX};
  throw std::invalid_argument(say("there is no codec '", name, "' built in"));
}

std::vector<std::string> faults_of(const Codec& codec, const CodecClaim& claim) {
  return Checker(codec, claim).run();
}

}  // namespace horo::tools
