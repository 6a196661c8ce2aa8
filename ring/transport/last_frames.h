// The last frames of a transport's data connections: a goodbye or an abort notice behind the frame that is being sent.
#pragma once

#include "horo/base/time.h"
#include "horo/base/wire.h"
#include "ring/transport/data_connection.h"

namespace horo {

// Queues a goodbye on every connection but those that send a message of an operation, whose peers wait for the rest.
void begin_goodbye(const DataConnections& connections);

// Queues the notice on every connection. If it reports the death of rank `dead`, which peers in shared memory see by
// themselves, their connections are dropped instead, because the ring of the dead rank or of a peer that waits for it
// may be full for ever. `dead` is -1 where no death is seen.
void begin_abort(const DataConnections& connections, const AbortNotice& notice, int dead);

// Sends the queued frames, for `patience` at most, then closes all connections for writing.
void flush_last(const DataConnections& connections, Duration patience);

}  // namespace horo
