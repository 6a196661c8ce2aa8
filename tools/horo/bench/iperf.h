// iperf3 as a reference on the same line: a server on one host, a client per measurement on the other.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tools/horo/run/child.h"

namespace horo::tools {

// Received Gbit/s; 0: nothing was sent in that direction.
struct Throughput {
  double to_client = 0, to_server = 0;
};

enum class Direction { kToServer, kToClient, kBoth };

// Parses the output of `iperf3 --json`. Throws std::runtime_error with iperf3's error.
Throughput throughput_in(const std::string& json, Direction direction);

// Whether this host has iperf3.
bool has_iperf();

class IperfServer {
 public:
  // Blocks until the server listens. Throws std::runtime_error.
  IperfServer(const std::string& host, int port);
  ~IperfServer();
  IperfServer(const IperfServer&) = delete;
  IperfServer& operator=(const IperfServer&) = delete;

 private:
  Child child_;
};

// Measures for one second, after one second of warm-up. Blocks for both. Throws std::runtime_error.
Throughput run_iperf_client(const std::string& host, int port, Direction direction);

}  // namespace horo::tools
