// Codecs: what travels instead of the values of an all_reduce (ring/group/coded_all_reduce.h). Who writes one writes no
// communication.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "horo/base/types.h"

namespace horo {

// Turns float32 values into bytes and back, block by block: the code of many values is that of each block() of them,
// one after the other, and of the rest. So pieces that begin at a block border can be coded one by one, and no result
// depends on where a tensor was cut. The same values give the same bytes in every process of the job. Any thread, and
// several at once. `wire`: any alignment. Encoding and decoding may throw, which ends the job.
class Codec {
 public:
  static constexpr std::size_t kMaxBlock = 1 << 20;

  virtual ~Codec() = default;
  virtual const std::string& name() const = 0;
  virtual std::size_t block() const = 0;                        // elements, 1 to kMaxBlock
  virtual std::size_t wire_bytes(std::size_t count) const = 0;  // exactly; of no elements: 0
  virtual bool stateful() const = 0;                            // what the wire lost is added to the next values

  // Writes the code of x + residual, and leaves in the residual what decode() will not give back: 0 where that is not a
  // number. residual: null unless the codec is stateful.
  virtual void encode(const float* x, float* residual, std::byte* wire, std::size_t count) const = 0;
  // Takes any bytes. What was not finite when it was encoded comes back as a NaN or an infinity.
  virtual void decode(const std::byte* wire, float* out, std::size_t count) const = 0;
};

// fp16   IEEE binary16: 2 bytes for each element; what is too large becomes infinite
// bf16   bfloat16: 2 bytes
// fp8    e4m3 with a power of two as the scale of each 32 elements: 33 bytes for them; infinities become NaN
// int8   multiples of 1/127 of the largest of each 256 elements: 260 bytes for them; infinities become NaN; stateful
std::vector<std::unique_ptr<Codec>> built_in_codecs();

// True where a codec can stand for the values: sums and averages of float32, float64 (through float32), float16 and
// bfloat16.
bool can_be_coded(CollectiveKind kind, ReduceOp op, DType dtype);

}  // namespace horo
