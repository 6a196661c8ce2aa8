// Exceptions besides std::invalid_argument (a bad argument or setting, before anything is queued).
#pragma once

#include <stdexcept>
#include <string>

namespace horo {

// Ranks disagree about one tensor. Only that tensor's Work fails, with the same text on every rank.
class Mismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The evidence for a lost peer, strongest first: strong evidence counts at once, weak evidence only if no rank has
// stronger evidence.
enum class Evidence {
  kTold,    // another rank has named it
  kDied,    // the kernel reports that it ended without leaving (horo/base/owner.h)
  kGone,    // its process has ended, possibly in good order
  kBroken,  // its connection broke
  kLate     // it did not send an awaited message in time
};

// A peer is gone, silent past a deadline, or ended the job. It ends the epoch: every Work fails with it.
class PeerLost : public std::runtime_error {
 public:
  // `origin` is the rank that was lost or that gave up first (-1: not known); `why` is the complete message.
  PeerLost(int origin, const std::string& why, Evidence evidence = Evidence::kTold)
      : std::runtime_error(why), origin_(origin), evidence_(evidence) {}
  int origin() const noexcept { return origin_; }
  Evidence evidence() const noexcept { return evidence_; }

 private:
  int origin_;
  Evidence evidence_;
};

// Bytes of a peer violate the protocol: wrong magic, length, version or authentication.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The engine stopped (shutdown) before this Work ended, or a call came after it.
class ShutDown : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace horo
