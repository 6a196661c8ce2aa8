// Tests a codec for its author, before a job depends on it.
#pragma once

#include <cfloat>
#include <string>
#include <vector>

#include "ring/codec/codec.h"

namespace horo::tools {

// The author's claim about the error. For every finite value up to `largest` in a block with largest magnitude m:
// |decoded - value| <= relative * |value| + of_block * m + absolute.
struct CodecClaim {
  double relative = 0;
  double of_block = 0;
  double absolute = 0;
  double largest = FLT_MAX;
};

// The claim of a built-in codec. Throws std::invalid_argument for another name.
CodecClaim claim_of_built_in(const std::string& name);

// Tests the contract of ring/codec/codec.h:
//   - sizes: wire_bytes() is 0 for no elements, and the sum over blocks for many;
//   - memory: the codec writes all bytes of its output and no others, and gives the same result at any address;
//   - pieces: the code of a tensor is the concatenation of the codes of its blocks;
//   - the claim holds for magnitudes from 2^-149 to 2^127; zeros stay zeros;
//   - a NaN or an infinity stays one at any place of a block, and affects no other block and no residual;
//   - any bytes can be decoded;
//   - for a stateful codec: the sums of 40 steps and the residual add up.
// Returns one sentence per violation; empty: no fault. An exception of the codec is a fault. Takes a fraction of a
// second.
std::vector<std::string> faults_of(const Codec& codec, const CodecClaim& claim);

}  // namespace horo::tools
