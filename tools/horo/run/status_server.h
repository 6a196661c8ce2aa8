// StatusServer: the guard's side of `horo status`, `horo why` and `horo resize`. A client connects to a Unix socket,
// sends a line, gets a document and the end of the stream. No client can delay the loop: nothing blocks, and the number
// of clients, their bytes and their time are bounded.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/events.h"

namespace horo::tools {

// Questions, whose answers come later; by kind.
enum class StatusQuestion : std::uint8_t { kStatus, kWhy };
inline constexpr std::array<std::string_view, 2> kStatusRequests{"status 1\n", "why 1\n"};
inline constexpr std::string_view kStatusRequest = kStatusRequests[0], kWhyRequest = kStatusRequests[1];
// And a number of ranks, and a newline. The answer is kResized or kNotResized, and a text.
inline constexpr std::string_view kResizeRequest = "resize 1 ";
inline constexpr char kResized = '+', kNotResized = '-';

struct ResizeAnswer {
  bool is_done = false;
  std::string text;  // after "job 28084: "
};

struct StatusOrders {
  std::function<void(StatusQuestion)> ask;        // a client asks: answer() is to follow
  std::function<ResizeAnswer(int ranks)> resize;  // null: refused
};

struct StatusAccess {
  std::string path;     // of the socket
  uid_t owner = 0;      // clients of other users than the owner and root are refused
  double client_s = 2;  // from the accept of a client to the end of its stream; of kWhy, whose ranks are asked, kWhyS
};

class StatusServer {
 public:
  static constexpr std::size_t kMostClients = 8;  // others wait to be accepted
  static constexpr double kWhyS = 8;

  // Listens at access.path, in place of what is there. Throws std::system_error.
  StatusServer(struct ev_loop* loop, StatusAccess access, StatusOrders orders);
  ~StatusServer();  // removes the socket
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  bool is_asked(StatusQuestion question) const;  // a client waits for answer()
  // Sends the document to all clients that wait for it.
  void answer(StatusQuestion question, std::string document);

 private:
  struct Client {
    Client(StatusServer& server, Descriptor socket);

    Descriptor end;
    IoWatch readable, writable;
    Timer due;
    std::string request;
    std::optional<StatusQuestion> waits_for = {};
    std::shared_ptr<const std::string> reply;
    std::size_t sent = 0;
  };

  void accept_some();
  bool may_ask(const Descriptor& end) const;
  void read(Client& client);
  void take_request(Client& client);
  void write(Client& client);
  void end(Client& client);

  struct ev_loop* const loop_;
  const StatusAccess access_;
  const StatusOrders orders_;
  Descriptor socket_;
  IoWatch connected_;
  Timer pause_;  // after a failed accept, as of a process without a free descriptor
  std::list<Client> clients_;
};

}  // namespace horo::tools
