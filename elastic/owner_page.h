// The page with the owner word (horo/base/owner.h) of a member of an elastic job. The member passes it to its guard,
// which so sees the death of the member at once, also if no other rank runs on the host.
#pragma once

#include <utility>

#include "horo/base/owner.h"

namespace horo {

class OwnerPage {
 public:
  // Throws std::system_error.
  static OwnerPage make();
  // Maps the page that a member has passed, for reading only. The caller closes the descriptor. Throws ProtocolError if
  // it is not that of a page whose size cannot change.
  static OwnerPage map(int fd);

  OwnerPage(OwnerPage&& other) noexcept : at_(std::exchange(other.at_, nullptr)), fd_(std::exchange(other.fd_, -1)) {}
  OwnerPage& operator=(OwnerPage&&) = delete;
  ~OwnerPage();

  // A page that was mapped must not be written.
  OwnerWord& word() const { return *static_cast<OwnerWord*>(at_); }
  // Sends the descriptor of a page that was made, in a packet of its own, and closes it. Blocks as send() does. Throws
  // std::system_error.
  void pass(int socket);

 private:
  OwnerPage(void* at, int fd) : at_(at), fd_(fd) {}

  void* at_;
  int fd_;  // of a page that was made, until it was passed; else -1
};

}  // namespace horo
