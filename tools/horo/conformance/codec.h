// What is wrong with a codec, found by trying it: for its author, before a job depends on it.
#pragma once

#include <cfloat>
#include <string>
#include <vector>

#include "ring/codec/codec.h"

namespace horo::tools {

// What its author says of a codec. Of every finite value up to `largest`, and of the largest magnitude in its block:
// |decoded - value| <= relative * |value| + of_block * that + absolute.
struct CodecClaim {
  double relative = 0;
  double of_block = 0;
  double absolute = 0;
  double largest = FLT_MAX;
};

// Of a codec that is built in. Throws std::invalid_argument for another name.
CodecClaim claim_of_built_in(const std::string& name);

// Tries what ring/codec/codec.h promises:
//   - sizes: no elements take no bytes, many elements those of their blocks;
//   - memory: it writes all of what is its own and nothing else, and gives the same again, at any address;
//   - pieces: the code of a tensor is that of its blocks;
//   - the claim, over magnitudes from 2^-149 to 2^127; zeros stay zeros;
//   - a NaN or an infinity in any place of a block is one afterwards, and disturbs no other block and no residual;
//   - any bytes are decoded;
//   - of a stateful one: what it sent in 40 steps and what it kept add up.
// One sentence for each of them that is broken; empty: there is no fault. What the codec throws is a fault. Takes a
// fraction of a second.
std::vector<std::string> faults_of(const Codec& codec, const CodecClaim& claim);

}  // namespace horo::tools
