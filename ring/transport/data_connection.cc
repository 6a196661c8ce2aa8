#include "ring/transport/data_connection.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include "horo/base/error.h"
#include "horo/base/say.h"

namespace horo {
namespace {

// Takes the descriptors of the connection.
std::unique_ptr<Stream> make_stream(Connection& connection, bool is_maker, std::size_t chunk_bytes) {
  if (connection.mpi) return make_mpi_stream(std::move(connection.fd), connection.mpi, connection.peer);
  if (!connection.memory) return make_socket_stream(std::move(connection.fd));
  return make_shm_stream(std::move(connection.fd), std::move(*connection.memory), is_maker, chunk_bytes);
}

std::string name_of(const Connection& connection, int rank) {
  const std::string peer = connection.name.empty() ? say("rank ", connection.peer) : connection.name;
  if (connection.width == 1) return say("rank ", rank, ": connection to ", peer);
  return say("rank ", rank, ": connection ", connection.number + 1, " of ", connection.width, " to ", peer);
}

}  // namespace

DataConnection::DataConnection(Connection connection, const Identity& self, std::size_t chunk_bytes)
    : peer_(connection.peer),
      number_(connection.number),
      self_(self),
      name_(name_of(connection, self.rank)),
      stream_(make_stream(connection, self.rank > peer_, chunk_bytes)),
      out_(self_, *stream_, connection.checks),
      in_(self_, *stream_, peer_, connection.incarnation) {}

bool DataConnection::read(const std::optional<OpTable::Expected>& expected) {
  if (in_.is_closed()) return false;
  if (in_.is_stalled()) {
    // The stream is not read now, so a failed send is the only sign of its end.
    if (out_.is_broken()) on_end(0);
    return false;
  }
  const bool is_new = in_.read(expected);
  if (in_.is_closed()) on_end(in_.error());
  return is_new;
}

FrameReader::Arrival DataConnection::next() {
  try {
    return in_.next();
  } catch (const ProtocolError& error) {
    throw_ended(error.what());
  }
}

void DataConnection::throw_ended(const std::string& why) const {
  throw PeerLost(peer_, say(name_, " was ended: ", why));
}

void DataConnection::on_end(int error) {
  in_.set_closed();
  if (has_left_) return;
  std::string why = std::generic_category().message(error);
  if (error == 0) why = "it closed the connection without a goodbye; did its process end?";
  if (error == ETIMEDOUT) why = "it acknowledged nothing within HORO_DEADLINE_MS; does its host run, and the network?";
  throw PeerLost(peer_, say(name_, " was lost: ", why), Evidence::kBroken);
}

pollfd DataConnection::before_sleep() noexcept {
  const short in = in_.is_stalled() ? 0 : POLLIN;
  const short out = out_.has_unsent() && can_send() ? POLLOUT : 0;
  return stream_->before_sleep(static_cast<short>(in | out));
}

void DataConnection::release(std::uint32_t channel, std::uint64_t plan) {
  in_.release(channel, plan);
  out_.release(channel, plan);
}

void DataConnection::release_all() {
  in_.release_all();
  out_.release_all();
}

void DataConnection::drop_all() noexcept {
  in_.release_all();
  out_.drop_all();
}

}  // namespace horo
