// GuardLink: a member's end of the socket to the guard of its host. A thread receives the guard's messages, and holds
// the owner word that shows the guard the death of this process.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "elastic/messages.h"
#include "horo/base/mutex.h"
#include "horo/base/time.h"

namespace horo {

// Any thread may call any function.
class GuardLink {
 public:
  // fd: a SOCK_SEQPACKET socket, of which this object is the owner from now on. Throws std::invalid_argument if it is
  // none, or another object has owned it. on_message: called by the link's thread
  // when take() has a message; must not block.
  GuardLink(int fd, std::function<void()> on_message);
  ~GuardLink();
  GuardLink(const GuardLink&) = delete;
  GuardLink& operator=(const GuardLink&) = delete;

  // Blocks only while the guard has not read many earlier messages. A message is lost if the guard has ended.
  void send(const MemberMessage& message) noexcept;
  // The oldest message that was not taken, but for Drain and Grow; nothing: there is none. Never blocks.
  std::optional<GuardMessage> take();
  // When the grace of the member's notice is over; nothing: it has none.
  std::optional<TimePoint> notice();
  // The processes that are ready to join, as the guard told last; ascending.
  std::vector<MemberId> joiners();
  // Whether the guard has ended this epoch, or evicted this member, in a message that was not taken yet.
  bool has_ended(std::uint32_t epoch);
  // Whether it has told that a member is not heard, in a message that was not taken yet.
  bool misses_one();
  // Blocks until there is a message, wake() was called or `until` is reached.
  void wait(TimePoint until);
  void wake() noexcept;
  bool is_closed();  // the guard has ended, and all messages were taken

 private:
  void run() noexcept;
  void begin() noexcept;
  void receive_all() noexcept;
  void receive(GuardMessage message);
  void close() noexcept;

  const int fd_;
  const std::function<void()> on_message_;
  Mutex send_mutex_;  // the packets of a message follow one another
  Mutex mutex_;
  CondVar changed_;
  std::deque<GuardMessage> received_ GUARDED_BY(mutex_);
  std::optional<TimePoint> notice_ GUARDED_BY(mutex_);
  std::vector<MemberId> joiners_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  bool is_begun_ GUARDED_BY(mutex_) = false;  // the guard has the owner word
  bool woken_ GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

}  // namespace horo
