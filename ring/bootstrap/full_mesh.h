// The meeting: ranks dial and accept each other until everybody who is expected has come and proved itself.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/time.h"
#include "ring/os/process.h"
#include "ring/os/socket.h"
#include "ring/transport/handshake.h"

namespace horo {

// Somebody to call; any of the addresses will do.
struct DialTarget {
  int rank = 0;
  Purpose purpose = Purpose::kData;
  std::vector<Address> addresses;
  int number = 0;  // of the connection, where there are several for the purpose
};

// Somebody who will call.
struct Dialer {
  int rank = 0;
  Purpose purpose = Purpose::kData;
  int number = 0;
};

struct FullMesh {
  Identity self;
  int listener = -1;        // -1: nobody is accepted
  int local_listener = -1;  // a second one, at a Unix socket
  std::vector<DialTarget> callees;
  std::vector<Dialer> callers;
  Duration hello_timeout{};
  TimePoint until;
  std::string too_late;              // the end of the error: "within 30000 ms (HORO_START_TIMEOUT_MS)"
  std::vector<Watched> watched{};    // processes without which the meeting cannot succeed
  std::vector<std::string> names{};  // how texts call the ranks, by rank; empty: by their ranks
};

// One connection for each of the callees and callers. Strangers (who do not speak, or not our language, or do not hold
// the key) cost a few hundred bytes for at most the hello timeout each, are counted and logged once. Calls are repeated
// with back-off. Throws PeerLost naming the ranks that have not come in time, or a rank that was lost meanwhile;
// whoever comes within two seconds after that is told the same.
std::vector<Connection> meet(const FullMesh& meeting);

// The message that says why the start fails.
std::vector<std::byte> abort_message(const Identity& self, const AbortNotice& notice);

// Tells a peer why the start fails, if its connection takes the bytes at once.
void send_abort(const Connection& connection, const Identity& self, const AbortNotice& notice);

// The abort notice among the frames that lie unread at a socket, if there is one; they stay where they are.
std::optional<AbortNotice> find_abort(int fd);

}  // namespace horo
