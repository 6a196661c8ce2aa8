#include "horo/checkpoint/dtypes.h"

#include <algorithm>
#include <array>

namespace horo::checkpoint {
namespace {

constexpr std::array kTypes{
    ElementType{"float32", "F32", 4, false},
    ElementType{"bfloat16", "BF16", 2, false},
    ElementType{"float16", "F16", 2, false},
    ElementType{"float64", "F64", 8, false},
    ElementType{"int64", "I64", 8, false},
    ElementType{"int32", "I32", 4, false},
    ElementType{"int16", "I16", 2, false},
    ElementType{"int8", "I8", 1, false},
    ElementType{"uint8", "U8", 1, false},
    ElementType{"uint16", "U16", 2, false},
    ElementType{"uint32", "U32", 4, false},
    ElementType{"uint64", "U64", 8, false},
    ElementType{"bool", "BOOL", 1, false},
    ElementType{"complex64", "C64", 8, false},
    ElementType{"complex128", "F64", 16, true},
    ElementType{"float8_e4m3fn", "F8_E4M3", 1, false},
    ElementType{"float8_e5m2", "F8_E5M2", 1, false},
    ElementType{"float8_e4m3fnuz", "F8_E4M3FNUZ", 1, false},
    ElementType{"float8_e5m2fnuz", "F8_E5M2FNUZ", 1, false},
    ElementType{"float8_e8m0fnu", "F8_E8M0", 1, false},
};

}  // namespace

const ElementType* type_of_torch(std::string_view word) noexcept {
  const auto found = std::ranges::find(kTypes, word, &ElementType::torch);
  return found == kTypes.end() ? nullptr : &*found;
}

const ElementType* type_of_safetensors(std::string_view word) noexcept {
  const auto found = std::ranges::find_if(
      kTypes, [word](const ElementType& type) { return type.safetensors == word && !type.is_pair; });
  return found == kTypes.end() ? nullptr : &*found;
}

}  // namespace horo::checkpoint
