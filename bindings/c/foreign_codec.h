// A codec of a caller in C, as the rooms know codecs.
#pragma once

#include <memory>
#include <string>

#include "bindings/c/horo_c.h"
#include "horo/horo.h"

namespace horo_c {

// The struct is copied; codec.user outlives what is returned, whose encode() and decode() throw std::runtime_error
// where the caller's do not return 0 or write outside of their memory: they are lent memory between guards, and only
// what belongs to them is taken from there. Throws std::invalid_argument for a struct that cannot be.
std::unique_ptr<horo::Codec> codec_from(const char* name, const horo_codec* codec);

}  // namespace horo_c
