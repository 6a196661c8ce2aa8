// Adapts a codec written by a caller in C to horo::Codec.
#pragma once

#include <memory>
#include <string>

#include "bindings/c/horo_c.h"
#include "horo/horo.h"

namespace horo_c {

// The struct is copied; codec.user must outlive the result. encode() and decode() throw std::runtime_error where the
// caller's function does not return 0. They receive the engine's own memory: `horo conformance codec` finds a codec
// that writes outside of it. Throws std::invalid_argument for a struct with a null function, a bad block or bad sizes.
std::unique_ptr<horo::Codec> codec_from(const char* name, const horo_codec* codec);

}  // namespace horo_c
