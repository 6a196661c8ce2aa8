// relay: a line between two network namespaces that does what it is told. Its orders come as arguments and, while it
// runs, as lines of its standard input; it ends with that.
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
constexpr int kMostAtOnce = 64;  // packets of one end, before the other has its turn

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
    for (const PacketOrder& order : orders) obey(order);
  }

  void run() {
    say("ready");
    while (listen()) {
      for (std::size_t from = 0; from < 2; ++from) take(from);
      for (std::size_t from = 0; from < 2; ++from) deliver(from);
    }
  }

 private:
  void say(const std::string& text) const {
    const std::chrono::duration<double> time = Clock::now() - begin_;
    std::cout << std::fixed << std::setprecision(6) << time.count() << " " << text << std::endl;
  }

  void obey(const PacketOrder& order) {
    const bool wanted[] = {order.a_to_b, order.b_to_a};
    for (std::size_t from = 0; from < 2; ++from) {
      if (!wanted[from]) continue;
      LinkSettings settings = links_[from].settings();
      order.change(settings);
      links_[from].set(settings);
    }
  }

  void answer(const std::string& line) {
    if (line == "counters") {
      say("counters {\"a->b\": " + counters_text(links_[0].counters()) +
          ", \"b->a\": " + counters_text(links_[1].counters()) + "}");
      return;
    }
    try {
      obey(order_of(line));
      say(line);
    } catch (const std::invalid_argument& error) {
      say(std::string("error: ") + error.what());
    }
  }

  // Sleeps until something can be done; false: nobody will say anything any more.
  bool listen() {
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
    return wanted[2].revents == 0 || hear();
  }

  bool hear() {
    char bytes[4096];
    const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (got <= 0) return false;
    heard_.append(bytes, static_cast<std::size_t>(got));
    for (std::size_t end = heard_.find('\n'); end != std::string::npos; end = heard_.find('\n')) {
      answer(heard_.substr(0, end));
      heard_.erase(0, end + 1);
    }
    return true;
  }

  std::optional<TimePoint> next_arrival() const {
    const std::optional<TimePoint> a = links_[0].next(), b = links_[1].next();
    return a && b ? std::min(*a, *b) : a ? a : b;
  }

  void take(std::size_t from) {
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
  std::array<Link, 2> links_;  // by where they begin
  std::string heard_;
};

int run_relay(int argc, char** argv) {
  CLI::App app{
      "A line between two network namespaces with delay, jitter, loss, reordering, corruption, a rate and cuts"};
  RelayOptions options;
  app.add_option("a", options.name_spaces[0], "a network namespace (ip netns)")->required();
  app.add_option("b", options.name_spaces[1], "another one")->required();
  app.add_option("orders", options.orders, "obeyed before anything passes: \"delay 10ms\" \"rate 1gbit\"");
  app.add_option("--device", options.device, "name of the network device that is made in each")->capture_default_str();
  app.add_option("--seed", options.seed, "the same seed: the same fate of the n-th segment of each direction")
      ->capture_default_str();
  app.footer("Orders, a line each on standard input, for both directions unless a->b or b->a stands behind them:\n" +
             orders_help() +
             "  counters        print what passed and what was lost, as JSON\n"
             "Each is answered by a line: seconds since the start, and the order or what is wrong with it. The first\n"
             "line says \"ready\". The devices are there from then on, down and without addresses, and go with the\n"
             "relay, which ends with its input. Needs root.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  std::vector<PacketOrder> orders;
  for (const std::string& order : options.orders) orders.push_back(order_of(order));
  ::prctl(PR_SET_TIMERSLACK, 1);  // the kernel adds 50 us to every sleep otherwise
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
