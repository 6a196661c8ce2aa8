// iperf3, which measures the same line beside us: its server on one host, a client for each measurement on the other.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tools/horo/run/child.h"

namespace horo::tools {

// Gbit/s that arrived; 0: nothing was sent that way.
struct Throughput {
  double to_client = 0, to_server = 0;
};

enum class Direction { kToServer, kToClient, kBoth };

// Of the text of `iperf3 --json`. Throws std::runtime_error with what iperf3 says went wrong.
Throughput throughput_in(const std::string& json, Direction direction);

// False: this host has no iperf3.
bool has_iperf();

class IperfServer {
 public:
  // Listens when this returns. Throws std::runtime_error.
  IperfServer(const std::string& host, int port);
  ~IperfServer();
  IperfServer(const IperfServer&) = delete;
  IperfServer& operator=(const IperfServer&) = delete;

 private:
  Child child_;
};

// A second of measuring, after another one for the connection to find its speed. Blocks for both. Throws
// std::runtime_error.
Throughput run_iperf_client(const std::string& host, int port, Direction direction);

}  // namespace horo::tools
