// The opening of every connection between ranks: both sides prove that they hold the job key, over fresh nonces, before
// anything else is read. No I/O: bytes in, bytes out.
//
//   dialer    -> HELLO: purpose, number, to, size, nonce
//   acceptor  -> HELLO: nonce, HMAC(key, "horo accept" | hello 1 | hello 2 up to here)
//   dialer    -> HELLO: HMAC(key, "horo dial" | hello 1 | hello 2)
//
// Each HELLO is a frame with job, epoch, incarnation and sender, and at most kMaxHelloBytes of payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "horo/base/auth.h"
#include "horo/base/config.h"
#include "horo/base/wire.h"
#include "ring/os/socket.h"
#include "ring/shm/segment.h"

namespace horo {

class MpiWorld;

inline constexpr std::size_t kMaxHelloBytes = 256;

enum class Purpose : std::uint8_t { kExchange = 1, kData = 2, kControl = 3 };

// Who a rank says it is; equal job, epoch and size on all ranks.
struct Identity {
  std::uint64_t job = 0;
  std::uint32_t epoch = 0;
  std::uint32_t incarnation = 0;
  int rank = 0;
  int size = 1;
  JobKey key{};  // zeros where the job has none

  Frame frame(FrameKind kind) const;  // with the fields that say who sends it
  // Throws ProtocolError unless the frame comes from that start of that rank in this job and epoch.
  void expect_from(const Frame& frame, int peer, std::uint32_t peer_incarnation) const;
  // The notice that an abort or a suspicion carries. Throws ProtocolError where it is none, or about a rank that there
  // is not.
  AbortNotice notice_in(std::span<const std::byte> payload) const;
};
Identity identity_of(const Config& config, std::uint32_t epoch);

// A connection whose other end has proved who it is.
struct Connection {
  Fd fd;
  int peer = -1;
  std::uint32_t incarnation = 0;
  Purpose purpose = Purpose::kData;
  std::string name{};                  // how texts call the peer; "": by its rank
  std::optional<ShmSegment> memory{};  // shared with the peer, for the bytes; the higher rank of the two made it
  std::optional<ShmSegment> arena{};   // the peer's (ring/shm/arena.h)
  bool checks = false;                 // data to the peer goes with a checksum (Config::crc)
  std::shared_ptr<MpiWorld> mpi{};     // through which the bytes go instead
  int number = 0;                      // of this connection among those of its purpose between the two ranks,
  int width = 1;                       // of which there are so many
};

class Handshake {
 public:
  // `number`: of the connection among several of one purpose, below 256.
  static Handshake dialing(const Identity& self, int peer, Purpose purpose, int number = 0) {
    return Handshake(self, peer, purpose, number);
  }
  static Handshake accepting(const Identity& self) { return Handshake(self, kAnybody, Purpose::kData, 0); }

  // Bytes to send now; empties itself.
  std::vector<std::byte> take_output() { return std::exchange(output_, {}); }
  // How many bytes the next feed() must bring, exactly; 0: nothing more is expected.
  std::size_t wants() const { return wants_; }
  // Throws ProtocolError, after which this handshake is over.
  void feed(std::span<const std::byte> bytes);
  // True once the other side is known; what take_output() still holds must be sent.
  bool is_done() const { return state_ == State::kDone; }
  int peer() const { return peer_; }
  std::uint32_t peer_incarnation() const { return peer_incarnation_; }
  Purpose purpose() const { return purpose_; }
  int number() const { return number_; }

 private:
  enum class State { kHeader, kBody, kDone };
  static constexpr int kAnybody = -1;  // the peer of an acceptor, until it speaks

  Handshake(const Identity& self, int peer, Purpose purpose, int number);
  void send(std::vector<std::byte> payload);
  void on_hello(std::span<const std::byte> payload);
  void on_first(ByteReader& body);
  void on_second(ByteReader& body);
  void on_third(ByteReader& body);
  void expect_mac(ByteReader& body, const Mac& mac) const;
  Mac mac(const char* label) const;

  Identity self_;
  bool dials_;
  int peer_;
  Purpose purpose_;
  int number_;
  std::uint32_t peer_incarnation_ = 0;
  State state_ = State::kHeader;
  int received_ = 0;  // hellos
  Frame header_;
  std::size_t wants_ = kFrameBytes;
  std::vector<std::byte> transcript_;
  std::vector<std::byte> output_;
};

}  // namespace horo
