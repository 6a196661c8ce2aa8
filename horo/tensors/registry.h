// Registry: the operations and codecs that a session knows by name.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "horo/base/mutex.h"
#include "ring/codec/codec_table.h"
#include "ring/reduce/custom_op.h"

namespace horo {

// Any thread. What was added stays as long as the registry.
class Registry {
 public:
  static constexpr std::size_t kMaxNameBytes = 64;

  // Throws std::invalid_argument where the name is taken, empty or too long, or there is nothing to call.
  void add_op(CustomOp op);
  // Throws std::invalid_argument for an unknown name, saying which there are.
  const CustomOp& op(std::string_view name) const;

  CodecTable& codecs() { return codecs_; }
  const CodecTable& codecs() const { return codecs_; }

 private:
  CodecTable codecs_;
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<const CustomOp>, std::less<>> ops_ GUARDED_BY(mutex_);
};

}  // namespace horo
