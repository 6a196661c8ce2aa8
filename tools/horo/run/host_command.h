// `horo host`: runs the ranks of one host for a `horo run` that may be on another host. It reads a HostStart from
// stdin, says that it is ready, and on kGo starts `horo run`, whose key is an inherited descriptor.
#pragma once

namespace horo::tools {

// Returns the exit code of that horo run. At the end of stdin, or if stdin is silent for too long, it kills it and with
// it all processes of the ranks.
// Throws ProtocolError, std::invalid_argument (the folder), std::system_error.
int run_host();

}  // namespace horo::tools
