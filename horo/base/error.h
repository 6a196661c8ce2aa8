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

// A peer is gone, silent past a deadline, or ended the job. It ends the epoch: every Work fails with it.
class PeerLost : public std::runtime_error {
 public:
  // `origin` is the rank that was lost or that gave up first (-1: not known); `why` is the whole message.
  PeerLost(int origin, const std::string& why) : std::runtime_error(why), origin_(origin) {}
  int origin() const noexcept { return origin_; }

 private:
  int origin_;
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
