// Counts, no times: what all_reduce sends, by our own counters, against the formula and against the kernel's TCP_INFO.
#include <algorithm>
#include <cmath>

#include "tools/horo/bench.h"
#include "tools/horo/bench_world.h"

namespace horo {
namespace {

constexpr int kRounds = 3;
constexpr double kMostPercent = 0.5;

struct Sent {
  double all_reduce = 0;
  double counted = 0;  // all_reduce and the barriers around it: all that ran meanwhile
  double kernel = 0;
};

Sent sent_so_far(const Session& session) {
  const auto all_reduce =
      static_cast<double>(session.counters().collectives(0, CollectiveKind::kAllReduce).traffic.bytes_sent);
  const auto barriers =
      static_cast<double>(session.counters().collectives(0, CollectiveKind::kBarrier).traffic.bytes_sent);
  return {all_reduce, all_reduce + barriers, static_cast<double>(session.kernel_bytes_sent())};
}

Sent measure(Session& session, Order order, std::size_t bytes) {
  TensorSpec spec;
  spec.name = "bench.wire." + std::string(name_of(order)) + "." + std::to_string(bytes);
  spec.order = order;
  spec.shape = {static_cast<std::int64_t>(bytes / sizeof(float))};
  std::vector<float> in(bytes / sizeof(float), 1), out(in.size());
  barrier(session);
  const Sent before = sent_so_far(session);
  for (int i = 0; i < kRounds; ++i) session.run(spec, in.data(), out.data());
  barrier(session);  // whoever leaves it knows that the others have received what was sent before
  const Sent after = sent_so_far(session);
  return {after.all_reduce - before.all_reduce, after.counted - before.counted, after.kernel - before.kernel};
}

double percent_off(double value, double expected) {
  if (expected == 0) return value == 0 ? 0 : 100;
  return std::abs(value / expected - 1) * 100;
}

// The worst of both deviations over all ranks.
double measure_row(Session& session, Order order, std::size_t bytes) {
  const auto ranks = static_cast<double>(session.topology().size);
  const double formula = 2 * (ranks - 1) / ranks * static_cast<double>(bytes) * kRounds;
  const Sent sent = measure(session, order, bytes);
  const std::vector<double> worst = max_over_ranks(
      session, {percent_off(sent.all_reduce, formula), percent_off(sent.counted, sent.kernel), sent.all_reduce});
  const double most = std::max(worst[0], worst[1]);
  print(session, row({std::to_string(session.topology().size), order == Order::kFast ? "ring" : "direct",
                      std::to_string(bytes), fixed(worst[2] / kRounds, 0), fixed(formula / kRounds, 0),
                      fixed(worst[0], 4), fixed(worst[1], 4), most <= kMostPercent ? "ok" : "OVER"},
                     14));
  return most;
}

}  // namespace

int bench_wire(Session& session, bool with_header) {
  if (with_header) {
    print(session, machine_header(session) +
                       "# bytes that a rank sends for one all_reduce, frame headers included; deviations: the worst "
                       "rank's, at most 0.5 %\n" +
                       row({"ranks", "algorithm", "bytes", "sent", "2(N-1)/N*S", "formula %", "kernel %", ""}, 14));
  }
  double most = 0;
  for (const Order order : {Order::kCanonical, Order::kFast}) {
    for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{16} << 20}) {
      most = std::max(most, measure_row(session, order, bytes));
    }
  }
  return most <= kMostPercent ? 0 : 1;
}

}  // namespace horo
