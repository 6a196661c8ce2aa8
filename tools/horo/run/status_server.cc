// The socket gets its name by rename() when it listens already: a socket that refuses a connection is that of a guard
// that has ended, and may be removed.
#include "tools/horo/run/status_server.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

namespace horo::tools {
namespace {

constexpr int kBacklog = 16;
constexpr double kPauseSeconds = 1;
constexpr std::size_t kMostRequestBytes = 64;
constexpr std::size_t kMostDigits = 6;

[[noreturn]] void fail_status(const std::string& what, int error) {
  throw std::system_error(error, std::generic_category(), what);
}

Descriptor listen_at(const std::string& path) {
  const std::string unready = path + ".new";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (unready.size() >= sizeof(address.sun_path)) fail_status(path, ENAMETOOLONG);
  std::memcpy(address.sun_path, unready.c_str(), unready.size() + 1);
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) fail_status("socket", errno);
  ::unlink(unready.c_str());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(socket.get(), kBacklog) != 0 || std::rename(unready.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(unready.c_str());
    fail_status(path, error);
  }
  return socket;
}

// "resize 1 12", without the newline.
bool begins_resize(std::string_view request) {
  if (!request.starts_with(kResizeRequest)) return false;
  const std::string_view digits = request.substr(kResizeRequest.size());
  return digits.size() <= kMostDigits && digits.find_first_not_of("0123456789") == std::string_view::npos;
}

std::optional<int> ranks_of(std::string_view request) {
  if (!request.ends_with('\n')) return std::nullopt;
  request.remove_suffix(1);
  if (!begins_resize(request) || request == kResizeRequest) return std::nullopt;
  return std::atoi(std::string(request.substr(kResizeRequest.size())).c_str());
}

}  // namespace

StatusServer::Client::Client(StatusServer& server, Descriptor socket)
    : end(std::move(socket)),
      readable(server.loop_, end.get(), EV_READ, [this, &server] { server.read(*this); }),
      writable(server.loop_, end.get(), EV_WRITE, [this, &server] { server.write(*this); }),
      due(server.loop_, [this, &server] { server.end(*this); }) {
  readable.start();
  due.set(server.access_.client_s);
}

StatusServer::StatusServer(struct ev_loop* loop, StatusAccess access, StatusOrders orders)
    : loop_(loop),
      access_(std::move(access)),
      orders_(std::move(orders)),
      socket_(listen_at(access_.path)),
      connected_(loop, socket_.get(), EV_READ, [this] { accept_some(); }),
      pause_(loop, [this] { connected_.start(); }) {
  connected_.start();
}

StatusServer::~StatusServer() {
  ::unlink(access_.path.c_str());
}

bool StatusServer::is_asked(StatusQuestion question) const {
  for (const Client& client : clients_) {
    if (client.waits_for == question) return true;
  }
  return false;
}

// A bounded number at a time; the loop calls again while more wait.
void StatusServer::accept_some() {
  for (int i = 0; i < kBacklog && clients_.size() < kMostClients; ++i) {
    Descriptor end(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (end.is_open()) {
      if (may_ask(end)) clients_.emplace_back(*this, std::move(end));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      connected_.stop();
      return pause_.set(kPauseSeconds);
    }
  }
  if (clients_.size() >= kMostClients) connected_.stop();
}

bool StatusServer::may_ask(const Descriptor& end) const {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(end.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == access_.owner || peer.uid == 0;
}

void StatusServer::read(Client& client) {
  std::array<char, kMostRequestBytes> bytes{};
  const ssize_t got = ::recv(client.end.get(), bytes.data(), bytes.size() - client.request.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return end(client);
  client.request.append(bytes.data(), static_cast<std::size_t>(got));
  take_request(client);
}

// A request that is not complete has the beginning of one.
void StatusServer::take_request(Client& client) {
  for (const StatusQuestion question : {StatusQuestion::kStatus, StatusQuestion::kWhy}) {
    if (client.request != kStatusRequests[static_cast<std::size_t>(question)]) continue;
    client.readable.stop();
    client.waits_for = question;
    if (question == StatusQuestion::kWhy) client.due.set(kWhyS);
    return orders_.ask(question);
  }
  const std::optional<int> ranks = ranks_of(client.request);
  if (ranks && orders_.resize) {
    const ResizeAnswer answer = orders_.resize(*ranks);
    client.readable.stop();
    client.reply = std::make_shared<const std::string>((answer.is_done ? kResized : kNotResized) + answer.text);
    return write(client);
  }
  const bool may_go_on = kStatusRequest.starts_with(client.request) || kWhyRequest.starts_with(client.request) ||
                         kResizeRequest.starts_with(client.request) || begins_resize(client.request);
  if (!may_go_on) end(client);
}

void StatusServer::answer(StatusQuestion question, std::string document) {
  const auto reply = std::make_shared<const std::string>(std::move(document));
  for (auto client = clients_.begin(); client != clients_.end();) {
    Client& one = *client++;  // write() may end it
    if (one.waits_for != question) continue;
    one.waits_for.reset();
    one.reply = reply;
    write(one);
  }
}

void StatusServer::write(Client& client) {
  const std::string_view left = std::string_view(*client.reply).substr(client.sent);
  const ssize_t sent = ::send(client.end.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  const bool is_full = sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  if (sent < 0 && !is_full) return end(client);
  client.sent += sent > 0 ? static_cast<std::size_t>(sent) : 0;
  if (client.sent == client.reply->size()) return end(client);
  client.writable.start();
}

// The last use of the client, also by the watcher of it that called.
void StatusServer::end(Client& client) {
  clients_.remove_if([&client](const Client& one) { return &one == &client; });
  if (!pause_.is_set()) connected_.start();
}

}  // namespace horo::tools
