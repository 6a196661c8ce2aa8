// `horo conformance`: tries what others wrote for horo, before a job depends on it.
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

// Prints every fault that faults_of() finds. 0: none; 1: some. Throws std::invalid_argument if there is no such thing.
int op_conformance(const OpOptions& options);

struct CodecOptions {
  std::string library;  // a shared library
  std::string symbol;   // a horo_codec in it
  CodecClaim claim;     // what its author says of it
};

// The same for the faults of a codec.
int codec_conformance(const CodecOptions& options);

}  // namespace horo::tools
