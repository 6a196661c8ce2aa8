#include "ring/codec/codec_table.h"

#include <stdexcept>

#include "horo/base/say.h"

namespace horo {
namespace {

// Checks what determines the number of bytes sent. faults_of() (tools/horo/conformance/codec.h) checks a whole codec.
void check_sizes(const Codec& codec) {
  const std::size_t block = codec.block();
  if (block == 0 || block > Codec::kMaxBlock) {
    throw std::invalid_argument(
        say("codec '", codec.name(), "': a block of ", block, " elements, expected 1 to ", Codec::kMaxBlock));
  }
  const std::size_t one = codec.wire_bytes(block);
  const std::size_t two = codec.wire_bytes(2 * block);
  if (codec.wire_bytes(0) != 0 || two != 2 * one) {
    throw std::invalid_argument(say("codec '", codec.name(), "': no elements take ", codec.wire_bytes(0),
                                    " bytes, a block ", one, ", two blocks ", two,
                                    "; expected 0 for no elements and twice as many for two blocks"));
  }
}

}  // namespace

CodecTable::CodecTable() {
  for (auto& codec : built_in_codecs()) add(std::move(codec));
}

void CodecTable::add(std::unique_ptr<Codec> codec) {
  const std::string name = codec->name();
  if (name.empty() || name.size() > kMaxNameBytes) {
    throw std::invalid_argument(say("a codec's name has 1 to ", kMaxNameBytes, " bytes, this one has ", name.size()));
  }
  check_sizes(*codec);
  MutexLock lock(mutex_);
  if (!codecs_.try_emplace(name, std::move(codec)).second) {
    throw std::invalid_argument(say("codec '", name, "' exists already; names are unique in a session"));
  }
}

const Codec& CodecTable::get(std::string_view name) const {
  MutexLock lock(mutex_);
  const auto found = codecs_.find(name);
  if (found != codecs_.end()) return *found->second;
  std::string known;
  for (const auto& [each, codec] : codecs_) known += (known.empty() ? "'" : ", '") + each + "'";
  throw std::invalid_argument(say("there is no codec '", name.substr(0, kMaxNameBytes), "', expected one of ", known,
                                  " or a registered codec"));
}

}  // namespace horo
