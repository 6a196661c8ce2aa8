// The data plane between two hosts, beside iperf3. It uses a Transport without a session: no negotiation, no buckets.
// Each round has round trips of messages of all sizes, a stream in each direction and in both at once, and the same
// streams of iperf3. Rank 0 runs the iperf3 server, so the directions of iperf3 are those of its client at rank 1.
#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "horo/engine/startup_agreement.h"
#include "horo/horo.h"
#include "ring/links.h"
#include "ring/os/socket.h"
#include "tools/horo/bench/bench.h"
#include "tools/horo/bench/fit.h"
#include "tools/horo/bench/iperf.h"
#include "tools/horo/bench/world.h"

namespace horo::tools {
namespace {

constexpr std::chrono::minutes kNetTime{2};
constexpr std::size_t kPieceBytes = 1 << 20;  // one message of a stream
constexpr std::size_t kPiecesUnderWay = 8;
constexpr std::size_t kFewestPieces = 24;
constexpr double kSecondsPerTurn = 0.1, kSecondsPerStream = 1;
constexpr int kNetWidth = 14;
constexpr int kPauses = 5;

std::vector<std::size_t> sizes_up_to(std::size_t most) {
  std::vector<std::size_t> sizes;
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{64}, std::size_t{256}}) {
    if (bytes <= most) sizes.push_back(bytes);
  }
  for (std::size_t bytes = 1024; bytes <= most; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

struct SizeTimes {
  std::size_t bytes = 0;
  std::vector<double> seconds;  // one way, by round
  double slowest = 0;           // of all round trips
};

// Gbit/s by round.
struct Rates {
  std::vector<double> horo, iperf;
};

enum Way : std::size_t { kOut, kBack, kBothOut, kBothBack, kWays };
constexpr std::array<const char*, kWays> kWayNames{"rank 0 to 1", "rank 1 to 0", "both: 0 to 1", "both: 1 to 0"};

// Two ranks that run the same turns. Rank 0 decides the values that both need and sends them.
class NetPair {
 public:
  NetPair(const Links& links, std::size_t max_bytes)
      : transport_(*links.transport),
        control_(*links.control),
        in_(std::max(max_bytes, kPieceBytes * kPiecesUnderWay)),
        out_(in_.size()) {}

  bool is_first() const { return transport_.rank() == 0; }

  std::array<double, 2> share(const std::array<double, 2>& mine) {
    std::array<double, 2> theirs{};
    const auto in = std::as_writable_bytes(std::span(theirs));
    wait({receive(in), send(std::as_bytes(std::span(mine)))});
    return theirs;
  }
  double agree(double mine) {
    const double theirs = share({mine, 0})[0];
    return is_first() ? mine : theirs;
  }

  // The one-way time in seconds, half a round trip, at rank 0: the median over the round trips of a turn, and the
  // slowest.
  std::array<double, 2> time_of(std::size_t bytes) {
    const double warm = median(round_trips(bytes, 3));
    const double fitting = agree(std::clamp(kSecondsPerTurn / warm, 3., 500.));
    const std::vector<double> trips = round_trips(bytes, static_cast<int>(fitting));
    const std::array<double, 2> mine{median(trips) / 2, *std::max_element(trips.begin(), trips.end()) / 2};
    const std::array<double, 2> theirs = share(mine);
    return is_first() ? mine : theirs;
  }

  // The one-way time in seconds after a pause without messages. The transport is ticked during the pause, as a session
  // does.
  double time_after_pause(std::size_t bytes, double pause_s) {
    std::vector<double> seconds;
    for (int i = 0; i < kPauses; ++i) {
      pause(Clock::now() + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(pause_s)));
      seconds.push_back(round_trips(bytes, 1).front() / 2);
    }
    return agree(median(seconds));
  }

  // The Gbit/s that arrive at this rank and at the other.
  std::array<double, 2> stream(bool sends, bool receives, std::size_t pieces) {
    share({});  // both ranks start together
    std::vector<Transport::Op> sent, received;
    std::optional<TimePoint> first;
    for (std::size_t i = 0; i < pieces + kPiecesUnderWay; ++i) {
      if (i >= kPiecesUnderWay) {
        std::vector<Transport::Op> oldest;
        if (receives) oldest.push_back(received[i - kPiecesUnderWay]);
        if (sends) oldest.push_back(sent[i - kPiecesUnderWay]);
        wait(oldest);
        if (!first) first = Clock::now();
      }
      if (i < pieces && receives) received.push_back(receive(piece(in_, i)));
      if (i < pieces && sends) sent.push_back(send(piece(out_, i)));
    }
    const double bits = 8. * static_cast<double>(kPieceBytes * (pieces - 1));
    const double here = receives ? bits / seconds_since(*first) / 1e9 : 0;
    return {here, share({here, 0})[0]};
  }

 private:
  int peer() const { return 1 - transport_.rank(); }
  Transport::Op send(std::span<const std::byte> bytes) { return transport_.post_send(peer(), Tag{}, bytes); }
  Transport::Op receive(std::span<std::byte> bytes) { return transport_.post_recv(peer(), Tag{}, bytes); }
  void wait(const std::vector<Transport::Op>& ops) { transport_.wait(ops, Clock::now() + kNetTime); }

  void pause(TimePoint until) {
    for (TimePoint again{}; again < until;) {
      again = std::min(transport_.tick(), until);
      control_.wait(again);
    }
  }

  // Each message in flight has its own buffer, so no buffer is written while it is being sent.
  static std::span<std::byte> piece(std::vector<std::byte>& memory, std::size_t number) {
    return std::span(memory).subspan(number % kPiecesUnderWay * kPieceBytes, kPieceBytes);
  }

  std::vector<double> round_trips(std::size_t bytes, int count) {
    const auto in = std::span(in_).first(bytes), out = std::span(out_).first(bytes);
    share({});
    std::vector<double> seconds;
    for (int i = 0; i < count; ++i) {
      const TimePoint begin = Clock::now();
      const Transport::Op received = receive(in);
      if (!is_first()) wait({received});
      const Transport::Op sent = send(out);
      if (is_first()) {
        wait({sent, received});
      } else {
        wait({sent});
      }
      seconds.push_back(seconds_since(begin));
    }
    return seconds;
  }

  Transport& transport_;
  ControlLink& control_;
  std::vector<std::byte> in_, out_;
};

// The host in "1.2.3.4:5" or "[::1]:5".
std::string host_in(const std::string& text) {
  const std::string host = text.substr(0, text.rfind(':'));
  return host.starts_with("[") ? host.substr(1, host.size() - 2) : host;
}
int port_in(const std::string& text) {
  return std::stoi(text.substr(text.rfind(':') + 1));
}

// iperf3 between the same two hosts; not available if one host does not have it.
class NetRival {
 public:
  NetRival(NetPair& pair, const std::string& addr) : pair_(pair) {
    const Address near_rank_0 = with_port(resolve(addr, "HORO_ADDR").front(), 0);
    host_ = host_in(to_text(near_rank_0));
    const std::array<double, 2> mine{has_iperf() ? 1. : 0., 0};
    is_there_ = pair.share(mine)[0] * mine[0] > 0;
    if (is_there_ && pair.is_first()) {
      port_ = port_in(to_text(local_address(listen_at(near_rank_0).get())));
      server_ = std::make_unique<IperfServer>(host_, port_);
    }
    port_ = static_cast<int>(pair.agree(port_));
  }

  bool is_there() const { return is_there_; }

  // Gbit/s to rank 0 and to rank 1.
  Throughput run(Direction direction) {
    Throughput mine;
    if (!pair_.is_first()) mine = run_iperf_client(host_, port_, direction);
    const std::array<double, 2> theirs = pair_.share({mine.to_client, mine.to_server});
    return pair_.is_first() ? Throughput{theirs[0], theirs[1]} : mine;
  }

 private:
  NetPair& pair_;
  std::string host_;
  bool is_there_ = false;
  int port_ = 0;
  std::unique_ptr<IperfServer> server_;
};

class NetMeasure {
 public:
  NetMeasure(const Links& links, const Config& config, const NetBench& bench)
      : bench_(bench), pair_(links, bench.max_bytes), rival_(pair_, config.addr) {
    for (const std::size_t bytes : sizes_up_to(bench.max_bytes)) times_.push_back({bytes, {}, 0});
  }

  void run() {
    for (int round = 0; round < bench_.rounds; ++round) {
      for (SizeTimes& size : times_) {
        const auto [middle, slowest] = pair_.time_of(size.bytes);
        size.seconds.push_back(middle);
        size.slowest = std::max(size.slowest, slowest);
      }
      if (bench_.pause_s > 0) after_pause_.push_back(pair_.time_after_pause(times_.back().bytes, bench_.pause_s));
      stream_ours();
      if (rival_.is_there()) stream_theirs();
    }
  }

  bool is_first() const { return pair_.is_first(); }
  std::string table() const;
  nlohmann::json report() const;

 private:
  std::string pause_line() const;
  void stream_ours() {
    const double of_a_byte = times_.back().seconds.back() / static_cast<double>(times_.back().bytes);
    const double fitting = kSecondsPerStream / of_a_byte / kPieceBytes;
    const auto pieces = static_cast<std::size_t>(std::clamp(fitting, 1. * kFewestPieces, 20'000.));
    const bool first = is_first();
    const auto one_way = [&](bool sends) { return pair_.stream(sends, !sends, pieces)[sends ? 1 : 0]; };
    rates_[kOut].horo.push_back(one_way(first));
    rates_[kBack].horo.push_back(one_way(!first));
    const std::array<double, 2> both = pair_.stream(true, true, pieces);
    rates_[kBothOut].horo.push_back(both[first ? 1 : 0]);
    rates_[kBothBack].horo.push_back(both[first ? 0 : 1]);
  }

  void stream_theirs() {
    rates_[kOut].iperf.push_back(rival_.run(Direction::kToClient).to_client);
    rates_[kBack].iperf.push_back(rival_.run(Direction::kToServer).to_server);
    const Throughput both = rival_.run(Direction::kBoth);
    rates_[kBothOut].iperf.push_back(both.to_client);
    rates_[kBothBack].iperf.push_back(both.to_server);
  }

  Fit fit() const {
    std::vector<TimeOfSize> points;
    for (const SizeTimes& size : times_) points.push_back({size.bytes, median(size.seconds)});
    return fit_of(points);
  }

  const NetBench& bench_;
  NetPair pair_;
  NetRival rival_;
  std::vector<SizeTimes> times_;
  std::array<Rates, kWays> rates_;
  std::vector<double> after_pause_;  // one-way seconds, by round
};

double percent_beside(double value, double fitted) {
  return (value / fitted - 1) * 100;
}

std::vector<double> ratios_of(const Rates& rates) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < rates.iperf.size(); ++i) ratios.push_back(rates.horo[i] / rates.iperf[i]);
  return ratios;
}

std::string NetMeasure::table() const {
  const Fit line = fit();
  std::string text = "# one way of a message (half a round trip) between two ranks, median of " +
                     std::to_string(bench_.rounds) + " rounds; fit: alpha + beta * bytes\n" +
                     row({"bytes", "us", "slowest us", "fit us", "off %", "Gbit/s"}, kNetWidth);
  for (const SizeTimes& size : times_) {
    const double seconds = median(size.seconds), fitted = line.seconds(size.bytes);
    text +=
        row({std::to_string(size.bytes), fixed(seconds * 1e6, 1), fixed(size.slowest * 1e6, 1), fixed(fitted * 1e6, 1),
             fixed(percent_beside(seconds, fitted), 1), fixed(8e-9 * static_cast<double>(size.bytes) / seconds, 3)},
            kNetWidth);
  }
  text += "# alpha " + fixed(line.alpha_s * 1e6, 1) + " us, beta " + fixed(line.beta_s_per_byte * 1e9, 4) +
          " ns per byte: " + fixed(8e-9 / line.beta_s_per_byte, 3) + " Gbit/s\n" + pause_line() +
          "# streams, Gbit/s that arrive" +
          (rival_.is_there() ? "; ratio: horo to iperf3 of the same round, median (least, most)\n"
                             : "; iperf3 is not installed on both hosts: tools/setup peers installs it\n") +
          row({"", "horo", "iperf3", "ratio", "least", "most"}, kNetWidth);
  for (std::size_t way = 0; way < kWays; ++way) {
    std::vector<std::string> cells{kWayNames[way], fixed(median(rates_[way].horo), 3), "-", "-", "-", "-"};
    if (rival_.is_there()) {
      const std::vector<double> ratios = ratios_of(rates_[way]);
      cells[2] = fixed(median(rates_[way].iperf), 3);
      cells[3] = fixed(median(ratios), 3);
      cells[4] = fixed(*std::min_element(ratios.begin(), ratios.end()), 3);
      cells[5] = fixed(*std::max_element(ratios.begin(), ratios.end()), 3);
    }
    text += row(cells, kNetWidth);
  }
  return text;
}

std::string NetMeasure::pause_line() const {
  if (after_pause_.empty()) return "";
  return "# " + std::to_string(times_.back().bytes) + " bytes after " + fixed(bench_.pause_s, 1) +
         " s without messages: " + fixed(median(after_pause_) * 1e6, 1) + " us\n";
}

nlohmann::json NetMeasure::report() const {
  const Fit line = fit();
  nlohmann::json sizes = nlohmann::json::array(), streams = nlohmann::json::array();
  for (const SizeTimes& size : times_) {
    const double seconds = median(size.seconds);
    sizes.push_back({{"bytes", size.bytes},
                     {"one_way_s", seconds},
                     {"slowest_s", size.slowest},
                     {"off_fit_percent", percent_beside(seconds, line.seconds(size.bytes))},
                     {"rounds_s", size.seconds}});
  }
  for (std::size_t way = 0; way < kWays; ++way) {
    streams.push_back({{"way", kWayNames[way]},
                       {"horo_gbit_per_s", rates_[way].horo},
                       {"iperf3_gbit_per_s", rates_[way].iperf},
                       {"ratio", median(ratios_of(rates_[way]))}});
  }
  return {{"horo", kVersion},
          {"cpu", cpu_model()},
          {"kernel", kernel_release()},
          {"alpha_s", line.alpha_s},
          {"beta_s_per_byte", line.beta_s_per_byte},
          {"messages", sizes},
          {"pause_s", bench_.pause_s},
          {"after_pause_s", after_pause_},
          {"streams", streams}};
}

void write_net_json(const std::string& name, const nlohmann::json& report) {
  std::ofstream file(name);
  file << report.dump(1) << "\n";
  file.close();
  if (!file) throw std::invalid_argument("--json " + name + ": cannot be written");
}

}  // namespace

int bench_net(Config config, const NetBench& bench) {
  if (config.size != 2) {
    throw std::invalid_argument("bench net: " + std::to_string(config.size) +
                                " ranks: expected two, one on each host: horo run --nnodes 2 -n 1 ... horo bench net");
  }
  config.transport = "tcp";
  const Links links = find_others(config, 0);
  Counters counters;
  const StartupAgreement compared = compare_settings(links, config, counters);
  NetMeasure measure(links, config, bench);
  if (measure.is_first()) {
    const bool is_apart = compared.hosts.front() != compared.hosts.back();
    std::cout << machine_header(compared.topology)
              << (is_apart ? "# two hosts\n" : "# ONE HOST: these are figures of its loopback interface\n")
              << std::flush;
  }
  measure.run();
  if (!measure.is_first()) return 0;
  std::cout << measure.table() << std::flush;
  if (!bench.json_file.empty()) write_net_json(bench.json_file, measure.report());
  return 0;
}

}  // namespace horo::tools
