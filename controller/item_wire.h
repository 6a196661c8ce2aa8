// Wire format of the items of the leader's stream.
#pragma once

#include "controller/messages.h"
#include "horo/base/wire.h"

namespace horo {

inline constexpr std::size_t kLeastItemBytes = 5;

void write_item(ByteWriter& out, const DownItem& item);
// Throws ProtocolError for what write_item() does not write.
DownItem read_item(ByteReader& in, const CoordinatorConfig& config);

}  // namespace horo
