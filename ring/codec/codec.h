// Codec: the compressed form of values in an all_reduce (ring/group/coded_all_reduce.h). A codec has no communication.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "horo/base/types.h"

namespace horo {

// Converts float32 values to bytes and back, block by block: the code of many values is the concatenation of the codes
// of their blocks of block() elements; the last block may be shorter. So pieces that begin at block borders can be
// coded separately, and results do not depend on where a tensor is cut. The same values give the same bytes in every
// process of the job. Any thread, concurrently. `wire` has any alignment. An exception from encode() or decode() ends
// the job.
class Codec {
 public:
  static constexpr std::size_t kMaxBlock = 1 << 20;

  virtual ~Codec() = default;
  virtual const std::string& name() const = 0;
  virtual std::size_t block() const = 0;                        // elements, 1 to kMaxBlock
  virtual std::size_t wire_bytes(std::size_t count) const = 0;  // exact; 0 for 0 elements
  virtual bool stateful() const = 0;  // the coding error is added to the next values (error feedback)

  // Writes the code of x + residual, and sets the residual to the difference between x + residual and its decoded
  // value, or to 0 where the difference is not finite. residual: null unless the codec is stateful.
  virtual void encode(const float* x, float* residual, std::byte* wire, std::size_t count) const = 0;
  // Accepts any bytes. A value that was not finite decodes to a NaN or an infinity.
  virtual void decode(const std::byte* wire, float* out, std::size_t count) const = 0;
};

// fp16   IEEE binary16: 2 bytes per element; larger values become infinities
// bf16   bfloat16: 2 bytes per element
// fp8    e4m3 with a power of two as the scale of 32 elements: 33 bytes for them; infinities become NaN
// int8   multiples of 1/127 of the largest magnitude of 256 elements: 260 bytes for them; infinities become NaN;
// stateful
std::vector<std::unique_ptr<Codec>> built_in_codecs();

// True for the collectives that support codecs: an all_reduce with a sum or an average of float32, float64 (rounded to
// float32), float16 or bfloat16.
bool can_be_coded(CollectiveKind kind, ReduceOp op, DType dtype);

}  // namespace horo
