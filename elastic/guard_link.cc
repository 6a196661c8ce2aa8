#include "elastic/guard_link.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

#include "elastic/owner_page.h"
#include "elastic/packets.h"
#include "horo/base/forked.h"
#include "horo/base/log.h"
#include "horo/base/thread.h"

namespace horo {

GuardLink::GuardLink(int fd, std::function<void()> on_message) : fd_(fd), on_message_(std::move(on_message)) {
  int type = 0;
  socklen_t size = sizeof type;
  const bool is_socket = ::getsockopt(fd_, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
  if (!is_socket || (::fcntl(fd_, F_GETFD) & FD_CLOEXEC) != 0) {
    throw std::invalid_argument("HORO_GUARD_FD=" + std::to_string(fd_) +
                                ": expected the socket that horo run has given to this process, used once");
  }
  ::fcntl(fd_, F_SETFD, FD_CLOEXEC);
  own_descriptor(fd_);
  thread_ = start_thread("horo guard", [this] { run(); });
  MutexLock lock(mutex_);
  while (!is_begun_) changed_.wait(mutex_);
}

GuardLink::~GuardLink() {
  ::shutdown(fd_, SHUT_RDWR);
  thread_.join();
  if (give_up_descriptor(fd_)) ::close(fd_);
}

void GuardLink::send(const MemberMessage& message) noexcept {
  try {
    const std::vector<std::vector<std::byte>> packets = packets_of(encode(message));
    const MutexLock lock(send_mutex_);
    for (const std::vector<std::byte>& bytes : packets) {
      ssize_t sent = 0;
      do {
        sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      } while (sent < 0 && errno == EINTR);
    }
  } catch (const std::exception& error) {
    log_warning(std::string("a message to the guard was lost: ") + error.what());
  }
}

std::optional<GuardMessage> GuardLink::take() {
  MutexLock lock(mutex_);
  if (received_.empty()) return std::nullopt;
  std::optional<GuardMessage> oldest = std::move(received_.front());
  received_.pop_front();
  return oldest;
}

std::optional<TimePoint> GuardLink::notice() {
  MutexLock lock(mutex_);
  return notice_;
}

std::vector<MemberId> GuardLink::joiners() {
  MutexLock lock(mutex_);
  return joiners_;
}

bool GuardLink::has_ended(std::uint32_t epoch) {
  MutexLock lock(mutex_);
  return std::any_of(received_.begin(), received_.end(), [epoch](const GuardMessage& message) {
    const auto* freeze = std::get_if<Freeze>(&message);
    return std::holds_alternative<Evicted>(message) || (freeze != nullptr && freeze->epoch == epoch);
  });
}

bool GuardLink::misses_one() {
  MutexLock lock(mutex_);
  return std::any_of(received_.begin(), received_.end(), [](const GuardMessage& message) {
    const auto* missed = std::get_if<Missed>(&message);
    return missed != nullptr && !missed->members.empty();
  });
}

void GuardLink::wait(TimePoint until) {
  MutexLock lock(mutex_);
  while (received_.empty() && !woken_ && !closed_ && Clock::now() < until) changed_.wait_until(mutex_, until);
  woken_ = false;
}

void GuardLink::wake() noexcept {
  MutexLock lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

void GuardLink::close() noexcept {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool GuardLink::is_closed() {
  MutexLock lock(mutex_);
  return closed_ && received_.empty();
}

// The word is held before the guard gets it, and until this object ends or the process dies.
void GuardLink::run() noexcept {
  try {
    OwnerPage page = OwnerPage::make();
    const OwnerHold hold(page.word());
    page.pass(fd_);
    begin();
    receive_all();
  } catch (const std::exception& error) {
    log_warning(std::string("the death of this rank would be seen late on other hosts: ") + error.what());
    begin();
    receive_all();
  }
}

void GuardLink::begin() noexcept {
  MutexLock lock(mutex_);
  is_begun_ = true;
  changed_.notify_all();
}

// A notice does not concern the engine, which may be busy with a change of epoch, and nor do the processes that wait.
void GuardLink::receive(GuardMessage message) {
  MutexLock lock(mutex_);
  if (const auto* drain = std::get_if<Drain>(&message)) {
    notice_ = Clock::now() + std::chrono::milliseconds(drain->grace_ms);
    return;
  }
  if (auto* grow = std::get_if<Grow>(&message)) {
    joiners_ = std::move(grow->joiners);
    return;
  }
  if (std::holds_alternative<View>(message)) joiners_.clear();  // Grow is told anew in each epoch
  received_.push_back(std::move(message));
  changed_.notify_all();
}

// Ends with the socket: the guard has ended, or this object ends.
void GuardLink::receive_all() noexcept {
  PacketJoiner joiner;
  std::vector<std::byte> bytes(kMaxPacket + 1);
  while (true) {
    const ssize_t got = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return close();
    try {
      const auto whole = joiner.take(std::span(bytes).first(static_cast<std::size_t>(got)));
      if (!whole) continue;
      receive(decode_guard_message(*whole));
    } catch (const std::exception& error) {
      log_error(std::string("a message of the guard is not valid: ") + error.what());
      continue;
    }
    on_message_();
  }
}

}  // namespace horo
