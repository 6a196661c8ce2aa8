// The certificates of one elastic job, for mutual TLS between the rendezvous and the hosts of the job. All texts are
// PEM, all keys P-256.
//
// All hosts of a job have its token, a JobKey. From the token and the name of the job both sides derive the same
// *enrolment key*, and each makes the self-signed enrolment root of it. The rendezvous draws the key of the job's
// authority (CA), and serves both kinds of clients at one port:
//   an enrolling client, which only has the token, verifies  leaf -> CA, cross-signed by the enrolment key -> its root;
//   an enrolled client, whose certificate the CA has signed, verifies  leaf -> CA, self-signed.
// The TLS server accepts client certificates of both roots; JobAuthority::issued() tells them apart, and a client of
// the enrolment key may only enrol. The token cannot sign for the CA: a process that only has the token can neither
// pass as an enrolled client, nor as the server of one; it can as the server of an enrolling client.
//
// Certificates are valid for ten years, from a day before (clocks of hosts differ): their key dies with the job, and
// the rendezvous refuses those of evicted hosts by name. The enrolment root has fixed dates.
//
// A failure of libcrypto itself is a std::runtime_error. The caller keeps private keys secret, and cleanse()s them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "horo/base/auth.h"

namespace horo {

inline constexpr const char* kServerName = "horo-rendezvous";  // DNS name of the server's certificate
inline constexpr std::size_t kMaxPemBytes = 16 << 10;          // of a text that this code reads
inline constexpr std::size_t kMaxCertificateName = 64;         // bytes (RFC 5280, ub-common-name)

struct Credentials {
  std::string roots_pem;        // of the other side, one or more
  std::string certificate_pem;  // the chain to present: the own certificate first, the root omitted
  std::string key_pem;          // private
};

struct CertificateRequest {
  std::string key_pem;  // private; stays with the client
  std::string request_pem;
};

// The CA of one job, in its rendezvous. Const functions: any thread.
class JobAuthority {
 public:
  static JobAuthority make(const JobKey& token, const std::string& job);
  // From the result of to_pem(). Throws ProtocolError for any other text, also for that of another job or token.
  static JobAuthority from_pem(const std::string& pem, const JobKey& token, const std::string& job);
  JobAuthority(JobAuthority&& other) noexcept;
  JobAuthority& operator=(JobAuthority&& other) noexcept;
  ~JobAuthority();

  std::string to_pem() const;     // with the private key: a rendezvous that is started again goes on with it
  Credentials server() const;     // a new certificate and key at each call; roots_pem: the CA and the enrolment root
  std::string roots_pem() const;  // the root that enrolled clients trust

  // A client certificate for the key in the request. Its subject is `name`, whatever the request says. Throws
  // ProtocolError unless the request has at most kMaxPemBytes, a P-256 key and a signature of this key, and the name
  // has 1 to kMaxCertificateName printable ASCII characters without spaces, and is not kServerName.
  std::string sign(const std::string& request_pem, const std::string& name) const;

  // The name in a client certificate that this CA has signed and that is valid now. Nothing for all other texts, such
  // as certificates of the enrolment key. Of several certificates the first one counts.
  std::optional<std::string> issued(const std::string& certificate_pem) const;

 private:
  struct Parts;
  explicit JobAuthority(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

// Of a client that enrols: a new key and certificate at each call.
Credentials enrolment_credentials(const JobKey& token, const std::string& job);

CertificateRequest make_request();

// Overwrites the text in memory, then empties it.
void cleanse(std::string& secret);

}  // namespace horo
