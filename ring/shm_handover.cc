// First everybody sends, which cannot block, to all lower ranks; then it waits for all higher ones and answers each;
// and then for the answers. So no two ranks wait for each other. A byte that belongs to none of this (an abort notice
// of a peer whose start failed) is left unread for the transport.
#include "ring/shm_handover.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "horo/base/error.h"
#include "horo/base/log.h"
#include "ring/say.h"
#include "ring/stream.h"

namespace horo {
namespace {

constexpr char kHere = '+';     // with the file: here is the memory; without: it is mapped
constexpr char kNothing = '-';  // there is none, the socket has to do

union FileMessage {  // aligned as the kernel wants it
  cmsghdr header;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

void send_answer(int socket, char answer, int file) {
  iovec part{&answer, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  FileMessage extra{};
  if (file >= 0) {
    message.msg_control = &extra;
    message.msg_controllen = sizeof(extra.bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof(int));
  }
  ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

struct Answer {
  char text = kNothing;
  Fd file;
};

class Handover {
 public:
  Handover(const Config& config, const Identity& self, TimePoint until) : config_(config), self_(self), until_(until) {}

  void offer(Connection& connection) {
    try {
      ShmSegment segment = ShmSegment::create(shm_stream_bytes(config_.shm_chunk_bytes * config_.shm_slots));
      send_answer(connection.fd.get(), kHere, segment.file());
      segment.close_file();
      connection.memory = std::move(segment);
    } catch (const std::exception& error) {
      send_answer(connection.fd.get(), kNothing, -1);
      do_without(connection, error.what());
    }
  }

  void accept(Connection& connection) {
    Answer answer = next_answer(connection);
    if (answer.text != kHere) return do_without(connection, "it could not make any, as its own message says");
    try {
      if (!answer.file.is_open()) throw ProtocolError("no descriptor came with it");
      ShmSegment segment = ShmSegment::map(std::move(answer.file), shm_stream_bytes(1));
      segment.close_file();
      connection.memory = std::move(segment);
      send_answer(connection.fd.get(), kHere, -1);
    } catch (const std::exception& error) {
      send_answer(connection.fd.get(), kNothing, -1);
      do_without(connection, error.what());
    }
  }

  void expect_accepted(Connection& connection) {
    if (!connection.memory || next_answer(connection).text == kHere) return;
    connection.memory.reset();
    do_without(connection, "it could not map it, as its own message says");
  }

 private:
  void do_without(const Connection& connection, const std::string& why) const {
    const std::string text = say("rank ", self_.rank, " shares no memory with ", connection.name, ": ", why);
    if (config_.transport != "shm") return log_warning(text + "; their bytes go over a Unix socket");
    throw std::invalid_argument(say("HORO_TRANSPORT=shm: ", text, ". HORO_TRANSPORT=auto or tcp does without"));
  }

  void wait_for(const Connection& connection) const {
    pollfd ready{connection.fd.get(), POLLIN, 0};
    while (::poll(&ready, 1, static_cast<int>(kWaitSlice.count())) <= 0) {
      if (Clock::now() < until_) continue;
      throw PeerLost(connection.peer,
                     say("rank ", self_.rank, ": ", connection.name, " did not answer about shared ", "memory within ",
                         config_.start_timeout.count(), " ms (HORO_START_TIMEOUT_MS)"));
    }
  }

  Answer next_answer(const Connection& connection) const {
    wait_for(connection);
    const int socket = connection.fd.get();
    char text = 0;
    const ssize_t seen = ::recv(socket, &text, 1, MSG_PEEK | MSG_DONTWAIT);
    if (seen == 1 && text != kHere && text != kNothing) return {};
    iovec part{&text, 1};
    FileMessage extra{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = &extra;
    message.msg_controllen = sizeof(extra.bytes);
    if (::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1) {
      throw PeerLost(connection.peer, say(connection.name, " is lost: it ended while the ranks were still connecting ",
                                          "(connection closed, seen by rank ", self_.rank, ")"));
    }
    Answer answer{text, Fd()};
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int)))
      return answer;
    int file = -1;
    std::memcpy(&file, CMSG_DATA(header), sizeof(int));
    answer.file = Fd(file);
    return answer;
  }

  const Config& config_;
  const Identity& self_;
  const TimePoint until_;
};

}  // namespace

void share_memory(const Config& config, const Identity& self, std::vector<Connection>& connections, TimePoint until) {
  Handover handover(config, self, until);
  std::vector<Connection*> lower, higher;
  for (Connection& connection : connections) {
    if (!peer_user(connection.fd.get())) continue;
    (connection.peer < self.rank ? lower : higher).push_back(&connection);
  }
  for (Connection* connection : lower) handover.offer(*connection);
  for (Connection* connection : higher) handover.accept(*connection);
  for (Connection* connection : lower) handover.expect_accepted(*connection);
}

}  // namespace horo
