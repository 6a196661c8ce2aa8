// The codecs of a session by name.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/mutex.h"
#include "ring/codec/codec.h"

namespace horo {

// Holds the built-in codecs from the start. No codec is ever removed. Any thread.
class CodecTable {
 public:
  CodecTable();

  // Throws std::invalid_argument if the name is in use, empty or longer than kMaxNameBytes, or if the codec's sizes are
  // inconsistent: block() outside of its range, wire_bytes(0) not 0, or two blocks not twice the bytes of one.
  void add(std::unique_ptr<Codec> codec);
  // The codec lives as long as the table. Throws std::invalid_argument that lists all names if there is none of this
  // name.
  const Codec& get(std::string_view name) const;

  static constexpr std::size_t kMaxNameBytes = 64;

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<Codec>, std::less<>> codecs_ GUARDED_BY(mutex_);
};

}  // namespace horo
