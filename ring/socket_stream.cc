// A stream that the kernel carries.
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "ring/stream.h"

namespace horo {
namespace {

class SocketStream final : public Stream {
 public:
  explicit SocketStream(Fd socket) : socket_(std::move(socket)) {
    if (is_within_host(socket_.get())) pace_nothing(socket_.get());
  }

  Moved receive(std::span<iovec> into) noexcept override { return receive_some(socket_.get(), into); }
  Moved send(std::span<iovec> from) noexcept override { return send_some(socket_.get(), from); }
  void end_sending() noexcept override { ::shutdown(socket_.get(), SHUT_WR); }
  bool is_delivered() const noexcept override {
    int waiting = 0;
    return ::ioctl(socket_.get(), SIOCOUTQ, &waiting) != 0 || waiting == 0;
  }
  pollfd before_sleep(short wanted) noexcept override { return {socket_.get(), wanted, 0}; }
  short after_sleep(short revents) noexcept override { return revents; }
  int socket() const override { return socket_.get(); }
  bool is_memory() const override { return false; }

 private:
  Fd socket_;
};

}  // namespace

std::unique_ptr<Stream> make_socket_stream(Fd socket) {
  return std::make_unique<SocketStream>(std::move(socket));
}

}  // namespace horo
