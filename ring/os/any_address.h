// Addresses that stand for all interfaces of a host, 0.0.0.0 and [::]: a program can listen there, and no other host
// can connect to them.
#pragma once

#include <sys/socket.h>

#include <string>

namespace horo {

bool is_any_address(const sockaddr& address);
// A numeric address in any notation: "0.0.0.0", "0", "::", "::ffff:0.0.0.0". Never asks a name server.
bool is_any_address(const std::string& host);

}  // namespace horo
