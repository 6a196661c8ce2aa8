// reduce_tree() on vectors.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "ring/reduce/reduce.h"

namespace horo::test {

// Contributors 0, 1, 2 ... with these inputs.
template <class T>
std::vector<T> reduce(DType dtype, ReduceOp op, const std::vector<std::vector<T>>& inputs,
                      const Scaling& scaling = {}) {
  std::vector<std::int64_t> ids(inputs.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<TreeInput> pointers;
  for (const auto& input : inputs) pointers.push_back({reinterpret_cast<const std::byte*>(input.data())});
  std::vector<T> out(inputs[0].size());
  reduce_tree({dtype, op, scaling}, canonical_tree(ids), pointers, reinterpret_cast<std::byte*>(out.data()),
              out.size());
  return out;
}

}  // namespace horo::test
