// relay: a configurable line between two network namespaces. Orders are arguments and lines of standard input; the
// relay runs until the end of standard input.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <system_error>

#include "tools/relay/order.h"
#include "tools/relay/tun.h"

namespace horo::tools::relay {
namespace {

constexpr int kUsage = 2;
constexpr int kMostAtOnce = 64;  // packets of one end before the other end is served

struct RelayOptions {
  std::array<std::string, 2> name_spaces;
  std::string device = "line";
  std::uint64_t seed = 0;
  std::vector<std::string> orders;
};

std::string counters_text(const LinkCounters& counters) {
  std::ostringstream text;
  text << "{\"segments\": " << counters.segments << ", \"bytes\": " << counters.bytes << ", \"lost\": " << counters.lost
       << ", \"late\": " << counters.late << ", \"corrupted\": " << counters.corrupted
       << ", \"dropped\": " << counters.dropped << ", \"cut\": " << counters.cut << "}";
  return text.str();
}

class Relay {
 public:
  Relay(const RelayOptions& options, const std::vector<PacketOrder>& orders)
      : ends_{Tun(options.name_spaces[0], options.device), Tun(options.name_spaces[1], options.device)},
        links_{Link(2 * options.seed), Link(2 * options.seed + 1)} {
    for (const PacketOrder& order : orders) apply(order);
  }

  void run() {
    print("ready");
    while (wait()) {
      for (std::size_t from = 0; from < 2; ++from) receive(from);
      for (std::size_t from = 0; from < 2; ++from) deliver(from);
    }
  }

 private:
  void print(const std::string& text) const {
    const std::chrono::duration<double> time = Clock::now() - begin_;
    std::cout << std::fixed << std::setprecision(6) << time.count() << " " << text << std::endl;
  }

  void apply(const PacketOrder& order) {
    const bool wanted[] = {order.a_to_b, order.b_to_a};
    for (std::size_t from = 0; from < 2; ++from) {
      if (!wanted[from]) continue;
      LinkSettings settings = links_[from].settings();
      order.change(settings);
      links_[from].set(settings);
    }
  }

  void execute(const std::string& line) {
    if (line == "counters") {
      print("counters {\"a->b\": " + counters_text(links_[0].counters()) +
            ", \"b->a\": " + counters_text(links_[1].counters()) + "}");
      return;
    }
    try {
      apply(order_of(line));
      print(line);
    } catch (const std::invalid_argument& error) {
      print(std::string("error: ") + error.what());
    }
  }

  // Blocks until a packet or order can be handled. False: end of standard input.
  bool wait() {
    std::array<pollfd, 3> wanted{{{ends_[0].fd(), POLLIN, 0}, {ends_[1].fd(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
    const std::optional<TimePoint> next = next_arrival();
    timespec time{};
    if (next) {
      const auto left = std::chrono::nanoseconds(std::max(Duration::zero(), *next - Clock::now())).count();
      time = {.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
    }
    if (::ppoll(wanted.data(), wanted.size(), next ? &time : nullptr, nullptr) < 0 && errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "poll");
    }
    return wanted[2].revents == 0 || read_orders();
  }

  bool read_orders() {
    char bytes[4096];
    const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (got <= 0) return false;
    input_.append(bytes, static_cast<std::size_t>(got));
    for (std::size_t end = input_.find('\n'); end != std::string::npos; end = input_.find('\n')) {
      execute(input_.substr(0, end));
      input_.erase(0, end + 1);
    }
    return true;
  }

  std::optional<TimePoint> next_arrival() const {
    const std::optional<TimePoint> a = links_[0].next(), b = links_[1].next();
    return a && b ? std::min(*a, *b) : a ? a : b;
  }

  void receive(std::size_t from) {
    for (int i = 0; i < kMostAtOnce; ++i) {
      std::optional<Packet> packet = ends_[from].read();
      if (!packet) return;
      links_[from].push(std::move(*packet), Clock::now());
    }
  }

  void deliver(std::size_t from) {
    const TimePoint now = Clock::now();
    while (const std::optional<Packet> packet = links_[from].pop(now)) ends_[1 - from].write(*packet);
  }

  const TimePoint begin_ = Clock::now();
  std::array<Tun, 2> ends_;
  std::array<Link, 2> links_;  // by source end
  std::string input_;
};

int run_relay(int argc, char** argv) {
  CLI::App app{
      "A line between two network namespaces with delay, jitter, loss, reordering, corruption, a rate and cuts"};
  RelayOptions options;
  app.add_option("a", options.name_spaces[0], "a network namespace (ip netns)")->required();
  app.add_option("b", options.name_spaces[1], "another network namespace")->required();
  app.add_option("orders", options.orders, "applied before the first packet: \"delay 10ms\" \"rate 1gbit\"");
  app.add_option("--device", options.device, "name of the network device in each namespace")->capture_default_str();
  app.add_option("--seed", options.seed, "the same seed: the same fate of the n-th segment of each direction")
      ->capture_default_str();
  app.footer(
      "Orders, one per line of standard input, for both directions or, with a->b or b->a at the end, for one:\n" +
      orders_help() +
      "  counters        print the numbers of segments that passed and were lost, as JSON\n"
      "The relay prints a line per order: seconds since the start, and the order or an error. Its first line\n"
      "is \"ready\": the devices then exist, down and without addresses. They are removed when the relay ends,\n"
      "at the end of standard input. Needs root.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  std::vector<PacketOrder> orders;
  for (const std::string& order : options.orders) orders.push_back(order_of(order));
  ::prctl(PR_SET_TIMERSLACK, 1);  // the default timer slack adds 50 us to each sleep
  Relay(options, orders).run();
  return 0;
}

}  // namespace
}  // namespace horo::tools::relay

int main(int argc, char** argv) {
  try {
    return horo::tools::relay::run_relay(argc, argv);
  } catch (const std::invalid_argument& error) {
    std::cerr << "relay: " << error.what() << "\n";
    return horo::tools::relay::kUsage;
  } catch (const std::exception& error) {
    std::cerr << "relay: " << error.what() << "\n";
    return 1;
  }
}
