// The library is loaded into this process, so an operation that writes out of bounds can crash it.

#include "tools/horo/conformance/conformance.h"

#include <dlfcn.h>

#include <iostream>
#include <memory>
#include <stdexcept>

#include "bindings/c/foreign_codec.h"
#include "bindings/c/horo_c.h"
#include "tools/horo/bench/lists.h"
#include "tools/horo/conformance/op.h"

namespace horo::tools {
namespace {

using Library = std::unique_ptr<void, int (*)(void*)>;

template <class Options>
std::invalid_argument unusable(const Options& options, const std::string& why) {
  return std::invalid_argument("conformance of " + options.symbol + " in " + options.library + ": " + why);
}

template <class Options>
Library opened(const Options& options) {
  Library library(::dlopen(options.library.c_str(), RTLD_NOW | RTLD_LOCAL), ::dlclose);
  if (!library) throw unusable(options, ::dlerror());
  return library;
}

// Returns 0 if there are no faults, else 1.
int print(const std::vector<std::string>& faults, const std::string& of) {
  for (const std::string& fault : faults) std::cout << fault << "\n";
  if (faults.empty()) std::cout << of << ": no faults\n";
  return faults.empty() ? 0 : 1;
}

CustomOp loaded(const OpOptions& options, void* library) {
  const auto* op = static_cast<const horo_op*>(::dlsym(library, options.symbol.c_str()));
  if (op == nullptr) throw unusable(options, "there is no such symbol; expected a horo_op");
  if (op->struct_bytes < sizeof(horo_op)) throw unusable(options, "its struct_bytes is not that of a horo_op");
  if (op->flags != HORO_OP_ASSOCIATIVE && op->flags != HORO_OP_WHOLE) {
    throw unusable(options,
                   "its flags are " + std::to_string(op->flags) + ", expected HORO_OP_ASSOCIATIVE or HORO_OP_WHOLE");
  }
  if (op->combine == nullptr) throw unusable(options, "combine is a null pointer");
  const auto combine = [op](std::byte* accumulator, const std::byte* value, std::uint64_t count, DType dtype) {
    return op->combine(op->user, accumulator, value, count, static_cast<std::int32_t>(dtype));
  };
  return {options.symbol, op->flags == HORO_OP_WHOLE, combine};
}

}  // namespace

int op_conformance(const OpOptions& options) {
  const Library library = opened(options);
  const CustomOp op = loaded(options, library.get());
  OpTrial trial;
  for (const std::string& word : options.dtypes) trial.dtypes.push_back(dtype_of("--dtype", word));
  trial.counts = options.counts;
  trial.tolerance = options.tolerance;
  return print(faults_of(op, trial), "operation '" + op.name + "'");
}

int codec_conformance(const CodecOptions& options) {
  const Library library = opened(options);
  const auto* found = static_cast<const horo_codec*>(::dlsym(library.get(), options.symbol.c_str()));
  if (found == nullptr) throw unusable(options, "there is no such symbol; expected a horo_codec");
  try {
    const std::unique_ptr<Codec> codec = horo_c::codec_from(options.symbol.c_str(), found);
    return print(faults_of(*codec, options.claim), "codec '" + codec->name() + "'");
  } catch (const std::invalid_argument& refusal) {
    throw unusable(options, refusal.what());
  }
}

}  // namespace horo::tools
