// The conformance kit of codecs: what ring/codec.h promises, tried on one codec. Pure, deterministic, a fraction of a
// second.
#pragma once

#include <cfloat>
#include <string>
#include <vector>

#include "ring/codec.h"

namespace horo {

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

// Everything that was found wrong, a sentence each; nothing: the codec conforms.
std::vector<std::string> check_codec(const Codec& codec, const CodecClaim& claim);

}  // namespace horo
