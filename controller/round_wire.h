// Wire format of the rounds in a message to the leader: a byte or two for each number but the stream's.
#pragma once

#include "controller/messages.h"
#include "horo/base/wire.h"

namespace horo {

// Both lists of the message: the rounds that began, and those that failed.
void write_rounds(ByteWriter& out, const UpMessage& message);
void read_rounds(ByteReader& in, UpMessage& message);

}  // namespace horo
