// Rank 2 dials rank 0 through an attacker that has recorded another handshake of the two and does not have the key. The
// attacker changes, cuts, adds, forges (with valid checksums), replays and reflects bytes. A side that completes the
// handshake must have received exactly the bytes that the other side sent.
#include <algorithm>
#include <array>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "ring/transport/handshake.h"
#include "tests/fuzz/targets.h"

namespace horo {
namespace {

using Bytes = std::vector<std::byte>;

Identity identity(int rank) {
  Identity self;
  self.job = 77;
  self.epoch = 3;
  self.incarnation = 10 + static_cast<std::uint32_t>(rank);
  self.rank = rank;
  self.size = 4;
  self.key.fill(std::byte{9});
  return self;
}

constexpr std::size_t kHellos = 4;

struct Sides {
  Handshake dialer = Handshake::dialing(identity(2), 0, Purpose::kControl);
  Handshake acceptor = Handshake::accepting(identity(0));
  Handshake& speaker(std::size_t message) { return message % 2 == 1 ? acceptor : dialer; }
  Handshake& listener(std::size_t message) { return message % 2 == 1 ? dialer : acceptor; }
  void admit() {
    if (acceptor.is_proved()) acceptor.admit();
  }
};

using Conversation = std::array<Bytes, kHellos>;

Conversation undisturbed();

// Feeds as a connection does: what is wanted, as it comes. Returns what was taken.
Bytes deliver(Handshake& to, const Bytes& bytes) {
  std::size_t taken = 0;
  while (to.wants() > 0 && bytes.size() - taken >= to.wants()) {
    const std::size_t size = to.wants();
    HORO_CHECK(size <= std::max(kMaxHelloBytes, kFrameBytes));
    to.feed(std::span(bytes).subspan(taken, size));
    taken += size;
  }
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(taken)};
}

Conversation undisturbed() {
  Sides sides;
  Conversation said;
  for (std::size_t message = 0; message < said.size(); ++message) {
    said[message] = sides.speaker(message).take_output();
    deliver(sides.listener(message), said[message]);
    sides.admit();
  }
  HORO_CHECK(sides.dialer.is_done() && sides.acceptor.is_done());
  return said;
}

void edit(Bytes& bytes, FuzzInput& input) {
  for (std::size_t edits = 1 + input.below(4); edits > 0 && !bytes.empty(); --edits) {
    bytes[input.below(bytes.size())] ^= static_cast<std::byte>(input.number(1));
  }
}

Bytes forged(FuzzInput& input) {
  Frame frame = identity(2).frame(static_cast<FrameKind>(1 + input.below(5)));
  frame.from = static_cast<std::uint32_t>(input.below(5));
  frame.incarnation = 10 + static_cast<std::uint32_t>(input.below(4));
  frame.epoch = 3 + static_cast<std::uint32_t>(input.below(2));
  frame.channel = static_cast<std::uint32_t>(input.below(2));
  frame.length = input.below(300);
  const FrameBytes header = encode(frame);
  Bytes bytes(header.begin(), header.end());
  const Bytes payload = input.take(frame.length);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

// A whole message with a checksum that fits whatever else was changed in its header.
void edit_and_seal(Bytes& bytes, FuzzInput& input) {
  if (bytes.size() < kFrameBytes) return;
  Frame frame = decode_frame(std::span(bytes).first<kFrameBytes>(), kMaxHelloBytes);
  std::uint64_t* const wide[] = {&frame.job, &frame.plan, &frame.key_hash, &frame.offset, &frame.length};
  std::uint32_t* const narrow[] = {&frame.epoch, &frame.incarnation, &frame.from, &frame.channel, &frame.segment};
  if (input.below(2) == 0) {
    *wide[input.below(std::size(wide))] ^= input.number(2);
  } else {
    *narrow[input.below(std::size(narrow))] ^= static_cast<std::uint32_t>(input.number(2));
  }
  const FrameBytes header = encode(frame);
  std::copy(header.begin(), header.end(), bytes.begin());
}

Bytes tampered(Bytes bytes, FuzzInput& input) {
  switch (input.below(8)) {
    case 0:
      edit(bytes, input);
      break;
    case 1:
      edit_and_seal(bytes, input);
      break;
    case 2:
      return forged(input);
    case 3:
      return undisturbed()[input.below(kHellos)];
    case 4:
      bytes.resize(input.below(bytes.size() + 1));
      break;
    case 5: {
      const Bytes more = input.take(1 + input.below(64));
      bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(input.below(bytes.size() + 1)), more.begin(),
                   more.end());
      break;
    }
    default:
      break;
  }
  return bytes;
}

}  // namespace

bool fuzz_handshakes(std::span<const std::byte> bytes) {
  FuzzInput input(bytes);
  Sides sides;
  bool as_said = true;
  for (std::size_t message = 0; message < kHellos; ++message) {
    const Bytes said = sides.speaker(message).take_output();
    HORO_CHECK(said.size() <= kFrameBytes + kMaxHelloBytes);
    Handshake& listener = sides.listener(message);
    try {
      as_said = as_said && deliver(listener, tampered(said, input)) == said;
    } catch (const ProtocolError&) {
      return false;
    }
    HORO_CHECK(as_said || !(listener.is_proved() || listener.is_done()));
    sides.admit();
  }
  return sides.dialer.is_done();
}

}  // namespace horo
