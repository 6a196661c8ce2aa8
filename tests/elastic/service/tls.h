// TLS between two sides in one thread, and requests that no honest client sends.
#pragma once

#include <string>

#include "elastic/service/credentials.h"

namespace horo {

struct TlsOutcome {
  bool is_done = false;     // both sides have verified the other one
  std::string server_saw;   // the client's certificate, PEM; empty: none
  std::string server_says;  // why it refused the client, or empty
  std::string client_says;
  std::string version;
};

// The client expects kServerName; both sides require a certificate of the other.
TlsOutcome shake_hands(const Credentials& server, const Credentials& client);

// What is wrong with a request.
enum class Flaw { kNone, kSignature, kLargeCurve, kRsaKey, kOtherName };
std::string flawed_request(Flaw flaw);

// The extensions of the first certificate and its names, as `openssl x509 -text` prints them.
std::string text_of_certificate(const std::string& pem);

}  // namespace horo
