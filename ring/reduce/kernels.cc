#include "ring/reduce/kernels.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "horo/base/say.h"

namespace horo {

std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all{&scalar_kernels(), &baseline_kernels()};
  for (const Kernels* more : {avx2_kernels(), avx512_kernels()}) {
    if (more != nullptr) all.push_back(more);
  }
  return all;
}

const Kernels& kernels_for(std::string_view name) {
  const auto all = all_kernels();
  if (name == "auto") return *all.back();
  std::string names;
  for (const Kernels* kernels : all) {
    if (kernels->name == name) return *kernels;
    names += say(names.empty() ? "" : ", ", kernels->name);
  }
  throw std::invalid_argument(
      say("HORO_KERNELS=\"", name, "\": this processor has no such kernels; expected ", names, " or auto"));
}

const Kernels& kernels_in_use() {
  static const Kernels& chosen = [&]() -> const Kernels& {
    const char* name = std::getenv("HORO_KERNELS");
    return kernels_for(name == nullptr ? "auto" : name);
  }();
  return chosen;
}

}  // namespace horo
