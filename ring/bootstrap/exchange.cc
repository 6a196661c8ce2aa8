// The exchange is a gather to rank 0 and a broadcast back, one frame each way on authenticated
// connections that live for that call alone. Where it takes place is all that differs: at Config::addr, or at a Unix
// socket, where the kernel vouches for the user and rank 0 can therefore hand out a new key.

#include <poll.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>

#include "horo/base/error.h"
#include "horo/base/say.h"
#include "ring/bootstrap/address.h"
#include "ring/bootstrap/full_mesh.h"
#include "ring/links.h"

namespace horo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLeaderPatience{2'000};
constexpr std::size_t kMaxBlobBytes = 4 << 10;

// One connection with bytes to send, a frame to receive, or both.
class Parcel {
 public:
  Parcel(const Connection& connection, const Identity& self, std::uint64_t max_length)
      : connection_(connection), self_(self), max_length_(max_length) {}

  // The bytes are kept where they are until all of them are sent.
  void send(std::span<const std::byte> frame) { out_ = frame; }
  void expect() { in_.resize(kFrameBytes); }

  int peer() const { return connection_.peer; }
  int fd() const { return connection_.fd.get(); }
  bool is_done() const { return out_.empty() && has_all(); }
  // Nothing else can be said there.
  bool is_inside_frame() const { return sent_any_ && !out_.empty(); }
  short events() const { return static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT)); }
  const std::vector<std::byte>& received() const { return in_; }

  void advance() {
    if (!out_.empty()) {
      iovec part = as_iovec(out_);
      const Moved moved = send_some(fd(), {&part, 1});
      // Where something is to come, it may say why.
      if (moved.ended && has_all()) throw_broken_off();
      out_ = out_.subspan(moved.bytes);
      sent_any_ = sent_any_ || moved.bytes > 0;
    }
    while (got_ < in_.size() && read()) {
    }
  }

 private:
  bool has_all() const { return got_ == in_.size() && (in_.empty() || has_header_); }

  bool read() {
    iovec part = as_iovec(std::span(in_).subspan(got_));
    const Moved moved = receive_some(fd(), {&part, 1});
    if (moved.ended) throw_broken_off();
    got_ += moved.bytes;
    if (got_ == in_.size() && !has_header_) on_header();
    if (got_ == in_.size() && has_header_ && frame_.kind == FrameKind::kAbort) throw_abort();
    return moved.bytes > 0;
  }

  void on_header() {
    frame_ = decode_frame(std::span(in_).first<kFrameBytes>(), max_length_);
    self_.expect_from(frame_, connection_.peer, connection_.incarnation);
    if (frame_.kind != FrameKind::kControl && frame_.kind != FrameKind::kAbort) throw ProtocolError("not an exchange");
    has_header_ = true;
    in_.resize(frame_.length);
    got_ = 0;
  }

  [[noreturn]] void throw_abort() const {
    const AbortNotice notice = self_.notice_in(in_);
    throw PeerLost(notice.origin, notice.reason);
  }

  [[noreturn]] void throw_broken_off() const {
    throw PeerLost(peer(), say("rank ", self_.rank, ": rank ", peer(), " broke off during the exchange of addresses"));
  }

  const Connection& connection_;
  const Identity& self_;
  std::uint64_t max_length_;
  std::span<const std::byte> out_;  // what is left of it
  std::vector<std::byte> in_;
  std::size_t got_ = 0;
  bool sent_any_ = false;
  bool has_header_ = false;
  Frame frame_;
};

std::vector<std::byte> framed(const Identity& self, std::span<const std::byte> payload) {
  return message_of(self.frame(FrameKind::kControl), payload);
}

// Moves all parcels at once.
void deliver(std::vector<Parcel>& parcels, const FullMesh& meeting) {
  while (true) {
    std::vector<pollfd> polls;
    std::vector<int> late;
    for (Parcel& parcel : parcels) {
      try {
        parcel.advance();
      } catch (const ProtocolError& error) {
        throw PeerLost(parcel.peer(), say("rank ", meeting.self.rank, ": rank ", parcel.peer(), ": ", error.what()));
      }
      if (parcel.is_done()) continue;
      polls.push_back({parcel.fd(), parcel.events(), 0});
      late.push_back(parcel.peer());
    }
    if (polls.empty()) return;
    const auto left = std::chrono::ceil<milliseconds>(meeting.until - Clock::now());
    if (left.count() <= 0) {
      throw PeerLost(late.front(), say("rank ", meeting.self.rank, ": ", say_ranks(late),
                                       " did not answer in the exchange of addresses ", meeting.too_late));
    }
    ::poll(polls.data(), polls.size(), static_cast<int>(std::min<long>(left.count(), 100)));
  }
}

class SocketExchange {
 public:
  SocketExchange(const Config& config, std::uint32_t epoch, bool is_local)
      : config_(config), self_(identity_of(config, epoch)), is_local_(is_local) {}

  std::vector<std::vector<std::byte>> operator()(std::span<const std::byte> mine) const {
    if (mine.size() > kMaxBlobBytes) throw std::invalid_argument("an exchange of more than 4 KiB per rank");
    if (self_.size == 1) return {{mine.begin(), mine.end()}};
    FullMesh meeting;
    meeting.self = self_;
    meeting.hello_timeout = config_.hello_timeout;
    meeting.until = Clock::now() + config_.start_timeout;
    meeting.too_late = say("within ", config_.start_timeout.count(), " ms (HORO_START_TIMEOUT_MS)");
    if (is_local_) {
      meeting.too_late += say(" at the local socket that is named after ", config_.launcher.name,
                              "'s job; ranks on another host, of another user or in another network namespace need "
                              "HORO_ADDR");
    }
    const auto addresses = is_local_ ? std::vector<Address>{meeting_socket(config_)}
                                     : usable_addresses(config_, config_.addr, "HORO_ADDR");
    return self_.rank == 0 ? gather(meeting, addresses, mine) : ask(meeting, addresses, mine);
  }

 private:
  std::vector<std::vector<std::byte>> gather(FullMesh& meeting, const std::vector<Address>& addresses,
                                             std::span<const std::byte> mine) const {
    const Fd listener = listen_at_any(addresses);
    meeting.listener = listener.get();
    for (int rank = 1; rank < self_.size; ++rank) meeting.callers.push_back({rank, Purpose::kExchange});
    const std::vector<Connection> connections = meet(meeting);
    std::vector<Parcel> parcels;
    for (const Connection& connection : connections) {
      parcels.emplace_back(connection, self_, kMaxBlobBytes);
      parcels.back().expect();
    }
    std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(self_.size));
    try {
      deliver(parcels, meeting);
      all[0].assign(mine.begin(), mine.end());
      for (const Parcel& parcel : parcels) all[static_cast<std::size_t>(parcel.peer())] = parcel.received();
      send_all(parcels, meeting, all);
    } catch (const PeerLost& lost) {
      for (std::size_t i = 0; i < parcels.size(); ++i) {
        if (!parcels[i].is_inside_frame()) send_abort(connections[i], self_, {lost.origin(), lost.what()});
      }
      throw;
    }
    return all;
  }

  void send_all(std::vector<Parcel>& parcels, const FullMesh& meeting,
                const std::vector<std::vector<std::byte>>& all) const {
    ByteWriter text;
    for (const auto& blob : all) {
      text.u32(static_cast<std::uint32_t>(blob.size()));
      text.raw(blob);
    }
    const auto frame = framed(self_, text.bytes());  // one for all of them
    for (Parcel& parcel : parcels) parcel.send(frame);
    deliver(parcels, meeting);
  }

  std::vector<std::vector<std::byte>> ask(FullMesh& meeting, const std::vector<Address>& addresses,
                                          std::span<const std::byte> mine) const {
    meeting.callees.push_back({0, Purpose::kExchange, addresses});
    const std::vector<Connection> connections = meet(meeting);
    meeting.until += kLeaderPatience;  // rank 0 knows who does not come
    const auto frame = framed(self_, mine);
    std::vector<Parcel> parcels;
    parcels.emplace_back(connections.front(), self_, static_cast<std::uint64_t>(self_.size) * (kMaxBlobBytes + 4));
    parcels.back().send(frame);
    parcels.back().expect();
    deliver(parcels, meeting);
    ByteReader reader(parcels.back().received());
    std::vector<std::vector<std::byte>> all;
    for (int rank = 0; rank < self_.size; ++rank) {
      const auto blob = reader.raw(reader.u32());
      all.emplace_back(blob.begin(), blob.end());
    }
    reader.expect_end();
    return all;
  }

  Fd listen_at_any(const std::vector<Address>& addresses) const {
    std::string why;
    for (const Address& address : addresses) {
      try {
        return is_local_ ? listen_patiently(address, config_.hello_timeout) : listen_for(config_, address).fd;
      } catch (const std::system_error& error) {
        why = is_local_ ? error.what() : explain_listening(error);
      }
    }
    if (is_local_) {
      throw std::invalid_argument(say("rank 0 ", why, ". Expected one job of this name under ", config_.launcher.name,
                                      "; HORO_JOB=another name tells two apart"));
    }
    throw std::invalid_argument(say("HORO_ADDR=", config_.addr, ": rank 0 ", why));
  }

  Config config_;
  Identity self_;
  bool is_local_;
};

}  // namespace

Exchange make_tcp_exchange(const Config& config, std::uint32_t epoch) {
  return SocketExchange(config, epoch, /*is_local=*/false);
}

Exchange make_local_exchange(const Config& config, std::uint32_t epoch) {
  return SocketExchange(config, epoch, /*is_local=*/true);
}

JobKey share_key(const Config& config, const Exchange& exchange) {
  if (config.key) return *config.key;
  JobKey key{};
  if (config.rank == 0) key = make_job_key();
  const auto all = exchange(config.rank == 0 ? std::span<const std::byte>(key) : std::span<const std::byte>());
  if (all.empty() || all[0].size() != key.size()) throw PeerLost(0, "rank 0 gave no job key of 32 bytes");
  std::copy(all[0].begin(), all[0].end(), key.begin());
  return key;
}

}  // namespace horo
