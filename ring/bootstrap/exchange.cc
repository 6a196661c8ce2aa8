// The exchange is a gather to rank 0 and a broadcast back, one frame each way, on authenticated connections that exist
// for that call alone. Rank 0 listens at Config::addr, or at a Unix socket. At a Unix socket the kernel reports the
// user of the peer, so rank 0 can send a new key to it.

#include <poll.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>

#include "horo/base/error.h"
#include "horo/base/say.h"
#include "ring/bootstrap/address.h"
#include "ring/bootstrap/full_mesh.h"
#include "ring/bootstrap/start_abort.h"
#include "ring/links.h"

namespace horo {
namespace {

using std::chrono::milliseconds;

// A rank waits longer than rank 0, because the error of rank 0 names the ranks that are missing.
constexpr milliseconds kRankZeroPatience{2'000};
constexpr std::size_t kMaxBlobBytes = 4 << 10;

// The frame to send and the frame to receive on one connection; either may be absent.
class FrameTransfer {
 public:
  FrameTransfer(const Connection& connection, const Identity& self, std::uint64_t max_length)
      : connection_(connection), self_(self), max_length_(max_length) {}

  // The caller keeps the bytes until all of them are sent.
  void send(std::span<const std::byte> frame) { out_ = frame; }
  void expect() { in_.resize(kFrameBytes); }

  int peer() const { return connection_.peer; }
  int fd() const { return connection_.fd.get(); }
  bool is_done() const { return out_.empty() && has_all(); }
  // No other frame can be sent until this one is complete.
  bool is_within_frame() const { return sent_any_ && !out_.empty(); }
  short events() const { return static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT)); }
  const std::vector<std::byte>& received() const { return in_; }

  void advance() {
    if (!out_.empty()) {
      iovec part = as_iovec(out_);
      const Moved moved = send_some(fd(), {&part, 1});
      // A frame that is still to be received may give the reason.
      if (moved.ended && has_all()) throw_ended();
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
    if (moved.ended) throw_ended();
    got_ += moved.bytes;
    if (got_ == in_.size() && !has_header_) on_header();
    if (got_ == in_.size() && has_header_ && frame_.kind == FrameKind::kAbort) throw_abort();
    return moved.bytes > 0;
  }

  void on_header() {
    frame_ = decode_frame(std::span(in_).first<kFrameBytes>(), max_length_);
    self_.expect_from(frame_, connection_.peer, connection_.incarnation);
    if (frame_.kind != FrameKind::kControl && frame_.kind != FrameKind::kAbort)
      throw ProtocolError("a frame that is not part of the exchange");
    has_header_ = true;
    in_.resize(frame_.length);
    got_ = 0;
  }

  [[noreturn]] void throw_abort() const {
    const AbortNotice notice = self_.notice_in(in_);
    throw PeerLost(notice.origin, notice.reason);
  }

  [[noreturn]] void throw_ended() const {
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

std::vector<std::byte> exchange_frame(const Identity& self, std::span<const std::byte> payload) {
  return message_of(self.frame(FrameKind::kControl), payload);
}

// Moves the frames of all connections until they are complete.
void transfer_all(std::vector<FrameTransfer>& transfers, const FullMesh& mesh) {
  while (true) {
    std::vector<pollfd> polls;
    std::vector<int> late;
    for (FrameTransfer& transfer : transfers) {
      try {
        transfer.advance();
      } catch (const ProtocolError& error) {
        throw PeerLost(transfer.peer(), say("rank ", mesh.self.rank, ": rank ", transfer.peer(), ": ", error.what()));
      }
      if (transfer.is_done()) continue;
      polls.push_back({transfer.fd(), transfer.events(), 0});
      late.push_back(transfer.peer());
    }
    if (polls.empty()) return;
    const auto left = std::chrono::ceil<milliseconds>(mesh.deadline - Clock::now());
    if (left.count() <= 0) {
      throw PeerLost(late.front(), say("rank ", mesh.self.rank, ": ", say_ranks(late),
                                       " did not answer in the exchange of addresses ", mesh.timeout_text));
    }
    const auto longest = std::chrono::ceil<milliseconds>(mesh.longest_poll);
    if (mesh.is_cancelled && mesh.is_cancelled()) throw PeerLost(-1, kCancelledText);
    ::poll(polls.data(), polls.size(), static_cast<int>(std::min<long>(left.count(), longest.count())));
  }
}

class SocketExchange {
 public:
  SocketExchange(const Config& config, std::uint32_t epoch, bool is_local, IsCancelled is_cancelled = {})
      : config_(config),
        self_(identity_of(config, epoch)),
        is_local_(is_local),
        is_cancelled_(std::move(is_cancelled)) {}

  std::vector<std::vector<std::byte>> operator()(std::span<const std::byte> mine) const {
    if (mine.size() > kMaxBlobBytes) throw std::invalid_argument("an exchange of more than 4 KiB per rank");
    if (self_.size == 1) return {{mine.begin(), mine.end()}};
    FullMesh mesh;
    mesh.self = self_;
    mesh.is_cancelled = is_cancelled_;
    if (config_.guard_fd >= 0) mesh.longest_poll = kElasticStartPoll;
    mesh.hello_timeout = config_.hello_timeout;
    mesh.deadline = Clock::now() + config_.start_timeout;
    mesh.timeout_text = say("within ", config_.start_timeout.count(), " ms (HORO_START_TIMEOUT_MS)");
    if (is_local_) {
      mesh.timeout_text += say(" at the local socket that is named after ", config_.launcher.name,
                               "'s job; ranks on another host, of another user or in another network namespace need "
                               "HORO_ADDR");
    }
    const auto addresses = is_local_ ? std::vector<Address>{rendezvous_socket(config_)}
                                     : usable_addresses(config_, config_.addr, "HORO_ADDR");
    return self_.rank == 0 ? gather(mesh, addresses, mine) : send_to_rank_zero(mesh, addresses, mine);
  }

 private:
  std::vector<std::vector<std::byte>> gather(FullMesh& mesh, const std::vector<Address>& addresses,
                                             std::span<const std::byte> mine) const {
    const Fd listener = listen_at_any(addresses);
    mesh.listener = listener.get();
    for (int rank = 1; rank < self_.size; ++rank) mesh.dialers.push_back({rank, Purpose::kExchange});
    const std::vector<Connection> connections = connect_mesh(mesh);
    std::vector<FrameTransfer> transfers;
    for (const Connection& connection : connections) {
      transfers.emplace_back(connection, self_, kMaxBlobBytes);
      transfers.back().expect();
    }
    std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(self_.size));
    try {
      transfer_all(transfers, mesh);
      all[0].assign(mine.begin(), mine.end());
      for (const FrameTransfer& transfer : transfers)
        all[static_cast<std::size_t>(transfer.peer())] = transfer.received();
      send_all(transfers, mesh, all);
    } catch (const PeerLost& lost) {
      for (std::size_t i = 0; i < transfers.size(); ++i) {
        if (!transfers[i].is_within_frame()) send_abort(connections[i], self_, {lost.origin(), lost.what()});
      }
      throw;
    }
    return all;
  }

  void send_all(std::vector<FrameTransfer>& transfers, const FullMesh& mesh,
                const std::vector<std::vector<std::byte>>& all) const {
    ByteWriter text;
    for (const auto& blob : all) {
      text.u32(static_cast<std::uint32_t>(blob.size()));
      text.raw(blob);
    }
    const auto frame = exchange_frame(self_, text.bytes());  // the same for every rank
    for (FrameTransfer& transfer : transfers) transfer.send(frame);
    transfer_all(transfers, mesh);
  }

  std::vector<std::vector<std::byte>> send_to_rank_zero(FullMesh& mesh, const std::vector<Address>& addresses,
                                                        std::span<const std::byte> mine) const {
    mesh.targets.push_back({0, Purpose::kExchange, addresses});
    const std::vector<Connection> connections = connect_mesh(mesh);
    mesh.deadline += kRankZeroPatience;
    const auto frame = exchange_frame(self_, mine);
    std::vector<FrameTransfer> transfers;
    transfers.emplace_back(connections.front(), self_, static_cast<std::uint64_t>(self_.size) * (kMaxBlobBytes + 4));
    transfers.back().send(frame);
    transfers.back().expect();
    transfer_all(transfers, mesh);
    ByteReader reader(transfers.back().received());
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
        return is_local_ ? listen_with_retry(address, config_.hello_timeout) : listen_for(config_, address).fd;
      } catch (const std::system_error& error) {
        why = is_local_ ? error.what() : explain_listening(error);
      }
    }
    if (is_local_) {
      throw std::invalid_argument(say("rank 0 ", why, ". Expected one job of this name under ", config_.launcher.name,
                                      "; HORO_JOB=another name separates two jobs"));
    }
    throw std::invalid_argument(say("HORO_ADDR=", config_.addr, ": rank 0 ", why));
  }

  Config config_;
  Identity self_;
  bool is_local_;
  IsCancelled is_cancelled_;
};

}  // namespace

Exchange make_tcp_exchange(const Config& config, std::uint32_t epoch, IsCancelled is_cancelled) {
  return SocketExchange(config, epoch, /*is_local=*/false, std::move(is_cancelled));
}

Exchange make_local_exchange(const Config& config, std::uint32_t epoch, IsCancelled is_cancelled) {
  return SocketExchange(config, epoch, /*is_local=*/true, std::move(is_cancelled));
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
