// Registry: the custom operations and codecs that were registered in a session, by name.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "horo/base/mutex.h"
#include "ring/codec/codec_table.h"
#include "ring/reduce/custom_op.h"

namespace horo {

// Any thread. Entries live as long as the registry.
class Registry {
 public:
  static constexpr std::size_t kMaxNameBytes = 64;

  // Throws std::invalid_argument if the name is taken, empty or too long, or the function is null.
  void add_op(CustomOp op);
  // Throws std::invalid_argument for an unknown name; the text lists the registered names.
  const CustomOp& op(std::string_view name) const;

  CodecTable& codecs() { return codecs_; }
  const CodecTable& codecs() const { return codecs_; }

 private:
  CodecTable codecs_;
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<const CustomOp>, std::less<>> ops_ GUARDED_BY(mutex_);
};

}  // namespace horo
