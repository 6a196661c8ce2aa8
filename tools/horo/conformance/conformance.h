// `horo conformance`: tests custom operations and codecs in shared libraries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/horo/conformance/codec.h"

namespace horo::tools {

struct OpOptions {
  std::string library;  // a shared library
  std::string symbol;   // a horo_op (bindings/c/horo_c.h) in it
  std::vector<std::string> dtypes = {"float32"};
  std::vector<std::uint64_t> counts = {1, 2, 17, 1'000};
  double tolerance = 0;
};

// Prints the faults that faults_of() finds. Returns 0: none, or 1. Throws std::invalid_argument if the library or
// symbol cannot be used.
int op_conformance(const OpOptions& options);

struct CodecOptions {
  std::string library;  // a shared library
  std::string symbol;   // a horo_codec in it
  CodecClaim claim;     // of its author
};

// The same for the faults of a codec.
int codec_conformance(const CodecOptions& options);

}  // namespace horo::tools
