// The full mesh: ranks dial and accept one another until every expected rank is connected and authenticated.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/time.h"
#include "ring/os/process.h"
#include "ring/os/socket.h"
#include "ring/transport/handshake.h"

namespace horo {

// A peer that this rank dials, at any of the addresses.
struct DialTarget {
  int rank = 0;
  Purpose purpose = Purpose::kData;
  std::vector<Address> addresses;
  int number = 0;  // of the connection, where there are several for the purpose
};

// A peer that dials this rank.
struct Dialer {
  int rank = 0;
  Purpose purpose = Purpose::kData;
  int number = 0;
};

inline constexpr const char* kCancelledText = "the start was cancelled: a rank was lost before all had connected";

// Where is_cancelled ends a start of an elastic job, and elsewhere.
inline constexpr std::chrono::milliseconds kElasticStartPoll{5}, kLongestStartPoll{100};

struct FullMesh {
  Identity self;
  int listener = -1;        // -1: no connection is accepted
  int local_listener = -1;  // a second one, at a Unix socket
  std::vector<DialTarget> targets;
  std::vector<Dialer> dialers;
  Duration hello_timeout{};
  TimePoint deadline;
  std::string timeout_text;        // the end of the error: "within 30000 ms (HORO_START_TIMEOUT_MS)"
  std::vector<Watched> watched{};  // processes of peers; the start fails when one of them ends
  // True: the start fails; PeerLost: it fails for the loss of that rank. Asked in every round of the loop.
  std::function<bool()> is_cancelled{};
  Duration longest_poll = kLongestStartPoll;  // between two rounds
  std::vector<std::string> names{};           // of the ranks in messages, by rank; empty: "rank N"
};

// Returns one connection for each target and each dialer, in the order in which they were authenticated. Dialing is
// repeated with back-off. Connections of unauthenticated peers are dropped after the hello timeout at the latest; their
// number is logged once. Throws PeerLost, naming the ranks that have not connected by the deadline, or a rank that was
// lost earlier; a rank that connects within two seconds after the failure receives the same reason.
std::vector<Connection> connect_mesh(const FullMesh& mesh);

}  // namespace horo
