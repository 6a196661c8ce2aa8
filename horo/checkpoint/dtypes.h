// The element types of tensors in checkpoints: torch's words, and those of safetensors.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace horo::checkpoint {

struct ElementType {
  std::string_view torch;        // "float32"
  std::string_view safetensors;  // "F32"
  std::size_t bytes = 0;         // of an element
  bool is_pair = false;  // safetensors has no such type: it has one of half the size, and one more dimension of 2
};

// Null: no such type.
const ElementType* type_of_torch(std::string_view word) noexcept;
const ElementType* type_of_safetensors(std::string_view word) noexcept;

}  // namespace horo::checkpoint
