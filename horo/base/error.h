// What can be thrown besides std::invalid_argument (a bad argument or setting, before anything is queued).
#pragma once

#include <stdexcept>
#include <string>

namespace horo {

// Ranks disagree about one tensor. Only that tensor's Work fails, with the same text on every rank.
class Mismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// How it is known that a peer is lost: what follows may be believed at once, or only if nobody knows better.
enum class Evidence {
  kTold,    // somebody who has judged it says so
  kDied,    // the kernel says that it ended in the middle (ring/shm/owner.h)
  kGone,    // its process has ended, perhaps in good order
  kBroken,  // its connection broke off
  kLate     // it did not send what was waited for
};

// A peer is gone, silent past a deadline, or ended the job. It ends the epoch: every Work fails with it.
class PeerLost : public std::runtime_error {
 public:
  // `origin` is the rank that was lost or that gave up first (-1: not known); `why` is the whole message.
  PeerLost(int origin, const std::string& why, Evidence evidence = Evidence::kTold)
      : std::runtime_error(why), origin_(origin), evidence_(evidence) {}
  int origin() const noexcept { return origin_; }
  Evidence evidence() const noexcept { return evidence_; }

 private:
  int origin_;
  Evidence evidence_;
};

// Somebody else's bytes do not follow the protocol: wrong magic, length, version or authentication.
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
