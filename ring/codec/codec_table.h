// The codecs that a session knows by name.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/mutex.h"
#include "ring/codec/codec.h"

namespace horo {

// Begins with those that are built in; none ever leaves. Any thread.
class CodecTable {
 public:
  CodecTable();

  // Throws std::invalid_argument where the name is taken, empty or longer than kMaxNameBytes, or the codec contradicts
  // itself (a block of no or too many elements, bytes of no elements, two blocks that are not twice one).
  void add(std::unique_ptr<Codec> codec);
  // Lives as long as the table. Throws std::invalid_argument for an unknown name, saying which there are.
  const Codec& get(std::string_view name) const;

  static constexpr std::size_t kMaxNameBytes = 64;

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<Codec>, std::less<>> codecs_ GUARDED_BY(mutex_);
};

}  // namespace horo
