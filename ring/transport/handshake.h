// The handshake of every connection between ranks: both sides prove that they hold the job key, over fresh nonces,
// before any other byte is read. Without I/O: takes and returns bytes.
//
//   dialer    -> HELLO: purpose, number, to, size, nonce, HMAC(key, "horo call" | hello 1 up to here)
//   acceptor  -> HELLO: nonce, HMAC(key, "horo accept" | hello 1 | hello 2 up to here)
//   dialer    -> HELLO: HMAC(key, "horo dial" | hello 1 | hello 2)
//   acceptor  -> HELLO: HMAC(key, "horo admit" | hello 1 | hello 2 | hello 3)
//
// Each HELLO is a frame with job, epoch, incarnation and sender, and at most kMaxHelloBytes of payload. The proof in
// hello 1 can be replayed, so it shows only that a process with the key made this hello: an acceptor under pressure
// drops peers without it first. A wrong one is answered all the same, so that the dialer learns that the keys differ.
// The last hello is the acceptor's: until then it may drop the connection, and the dialer dials again.
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

// The identity that a rank claims. Job, epoch and size are equal on all ranks.
struct Identity {
  std::uint64_t job = 0;
  std::uint32_t epoch = 0;
  std::uint32_t incarnation = 0;
  int rank = 0;
  int size = 1;
  JobKey key{};  // zeros where the job has no key

  Frame frame(FrameKind kind) const;  // with the fields of the sender
  // Throws ProtocolError unless the frame is from that incarnation of that rank, in this job and epoch.
  void expect_from(const Frame& frame, int peer, std::uint32_t peer_incarnation) const;
  // Decodes the payload of an abort notice or a suspicion. Throws ProtocolError if it is malformed or names a rank
  // outside of the world.
  AbortNotice notice_in(std::span<const std::byte> payload) const;
};
Identity identity_of(const Config& config, std::uint32_t epoch);

// An authenticated connection.
struct Connection {
  Fd fd;
  int peer = -1;
  std::uint32_t incarnation = 0;
  Purpose purpose = Purpose::kData;
  std::string name{};                         // of the peer in messages; "": "rank N"
  std::optional<ShmSegment> memory{};         // carries the bytes; the higher rank of the two created it
  std::shared_ptr<const ShmSegment> arena{};  // of the peer (ring/shm/arena.h)
  bool checks = false;                        // payloads to the peer carry a checksum (Config::crc)
  std::shared_ptr<MpiWorld> mpi{};            // carries the bytes; null: it does not
  int number = 0;                             // of this connection among those of its purpose between the two ranks
  int width = 1;                              // the number of those connections
};

class Handshake {
 public:
  // `number`: of the connection among those of its purpose, below 256.
  static Handshake dialing(const Identity& self, int peer, Purpose purpose, int number = 0) {
    return Handshake(self, peer, purpose, number);
  }
  static Handshake accepting(const Identity& self) { return Handshake(self, kUnknown, Purpose::kData, 0); }

  // Returns the bytes to send now, each once.
  std::vector<std::byte> take_output() { return std::exchange(output_, {}); }
  // The exact number of bytes for the next feed(); 0: no more bytes are expected.
  std::size_t wants() const { return wants_; }
  // Throws ProtocolError; the handshake has failed then.
  void feed(std::span<const std::byte> bytes);
  // The acceptor: the peer's first hello proves the key. `call()`: that proof, which no other connection repeats.
  bool is_called() const { return is_called_; }
  const Mac& call() const { return call_; }
  // The acceptor: the peer is authenticated, and admit() ends the handshake.
  bool is_proved() const { return state_ == State::kProved; }
  void admit();
  // The dialer: it has authenticated the acceptor and waits until it is admitted.
  bool awaits_admission() const { return dials_ && received_ == 1; }
  // True once the peer is authenticated and this rank admitted; the rest of take_output() must still be sent.
  bool is_done() const { return state_ == State::kDone; }
  int peer() const { return peer_; }
  std::uint32_t peer_incarnation() const { return peer_incarnation_; }
  Purpose purpose() const { return purpose_; }
  int number() const { return number_; }

 private:
  enum class State { kHeader, kBody, kProved, kDone };
  static constexpr int kUnknown = -1;  // the peer of an acceptor before its first hello

  Handshake(const Identity& self, int peer, Purpose purpose, int number);
  Frame hello_of(std::size_t payload_bytes) const;
  void send(const Mac& proof);
  void on_hello(std::span<const std::byte> payload);
  void on_first(ByteReader& body, std::span<const std::byte> payload);
  void on_second(ByteReader& body);
  void on_third(ByteReader& body, std::span<const std::byte> payload);
  void on_fourth(ByteReader& body);
  Mac mac(const char* label) const;

  Identity self_;
  bool dials_;
  int peer_;
  Purpose purpose_;
  int number_;
  std::uint32_t peer_incarnation_ = 0;
  State state_ = State::kHeader;
  int received_ = 0;  // hellos
  bool is_called_ = false;
  Mac call_{};
  Frame header_;
  std::size_t wants_ = kFrameBytes;
  std::vector<std::byte> transcript_;
  std::vector<std::byte> output_;
};

}  // namespace horo
