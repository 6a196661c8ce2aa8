// Measures a step whose gradients are submitted one by one and then waited for, and beside it the same number of bytes
// in one bucket, reduced by a group without an engine over its own connections. The difference is the cost of
// negotiation, packing and delivery.
#include <memory>

#include "ring/group.h"
#include "ring/links.h"
#include "tools/horo/bench/bench.h"
#include "tools/horo/bench/world.h"

namespace horo::tools {
namespace {

constexpr std::size_t kTensorElements = 16;    // of a tensor
constexpr std::uint32_t kBareEpoch = 1 << 16;  // no session of this job has connections of this epoch
constexpr int kFirstSteps = 3;                 // steps that send names and make plans

using Buffers = std::vector<std::vector<float>>;

struct Steps {
  std::vector<double> submit_s, wait_s;  // max over ranks
  std::vector<std::int64_t> control;     // four counts per step, summed over ranks
  std::vector<std::int64_t> of(int step) const {
    const auto first = control.begin() + std::ptrdiff_t{4} * step;
    return {first, first + 4};
  }
};

std::vector<Key> declare_gradients(Session& session, int tensors) {
  std::vector<Key> keys;
  for (int i = 0; i < tensors; ++i) {
    TensorSpec spec;
    spec.name = "layer" + std::to_string(i) + ".weight";
    spec.stepwise = true;
    spec.op = ReduceOp::kAverage;
    spec.shape = {kTensorElements};
    keys.push_back(session.declare(spec));
  }
  return keys;
}

void run_step(Session& session, const std::vector<Key>& keys, Buffers& buffers, Steps& steps) {
  std::vector<std::shared_ptr<Work>> works;
  works.reserve(keys.size());
  const TimePoint begin = Clock::now();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    works.push_back(session.submit({.key = keys[i], .in = buffers[i].data(), .out = buffers[i].data()}));
  }
  steps.submit_s.push_back(seconds_since(begin));
  const TimePoint submitted = Clock::now();
  session.wait(works, TimePoint::max());
  steps.wait_s.push_back(seconds_since(submitted));
  for (const auto& work : works) work->outcome();
  session.step_end(0);
}

// Messages that are sent after the end of a step count for the next step.
Steps run_steps(Session& session, const AgreeBench& bench) {
  const std::vector<Key> keys = declare_gradients(session, bench.tensors);
  Buffers buffers(keys.size(), std::vector<float>(kTensorElements, 1));
  Steps steps;
  Counters::Control before = session.counters().control();
  for (int step = 0; step < bench.steps; ++step) {
    run_step(session, keys, buffers, steps);
    const Counters::Control now = session.counters().control();
    for (const auto& count :
         {now.messages - before.messages, now.bytes - before.bytes,
          now.messages_with_names - before.messages_with_names, now.messages_with_bits - before.messages_with_bits}) {
      steps.control.push_back(static_cast<std::int64_t>(count));
    }
    before = now;
  }
  steps.submit_s = max_over_ranks(session, steps.submit_s);
  steps.wait_s = max_over_ranks(session, steps.wait_s);
  steps.control = sum_over_ranks(session, steps.control);
  return steps;
}

// The median over rounds of the slowest rank's time for the bucket alone.
double bare_bucket(Session& session, const AgreeBench& bench) {
  const Config& config = session.config();
  Links links = connect_tcp(config, kBareEpoch, make_tcp_exchange(config, kBareEpoch));
  Counters counters;
  std::vector<int> members;
  Collective collective;
  for (int rank = 0; rank < config.size; ++rank) {
    members.push_back(rank);
    collective.contributors.push_back(rank);
  }
  const std::unique_ptr<Group> group = make_transport_group(links, {members, 0}, config, counters);
  const std::size_t count = kTensorElements * static_cast<std::size_t>(bench.tensors);
  const Allocation memory = group->allocate(count * sizeof(float));
  collective.in = collective.out = {.data = memory.data.get(), .bytes = count * sizeof(float)};
  collective.counts = {count};
  collective.what = "the bucket alone";
  std::vector<double> times;
  for (int step = 0; step < bench.steps; ++step) {
    barrier(session);
    collective.plan = static_cast<std::uint64_t>(step);
    collective.deadline = Clock::now() + config.deadline;
    const TimePoint begin = Clock::now();
    group->run(collective);
    times.push_back(seconds_since(begin));
  }
  times = max_over_ranks(session, times);
  links.control->goodbye(std::chrono::seconds(1));
  return median(times);
}

std::string table_of(const Steps& steps, const AgreeBench& bench) {
  std::string text = row({"step", "submit us", "agree us", "messages", "bytes", "with names", "with bits"}, 12);
  for (int step = 0; step < bench.steps; ++step) {
    const auto at = static_cast<std::size_t>(step);
    std::vector<std::string> cells = {std::to_string(step), fixed(steps.submit_s[at] * 1e6, 1),
                                      fixed(steps.wait_s[at] * 1e6, 1)};
    for (const std::int64_t count : steps.of(step)) cells.push_back(std::to_string(count));
    text += row(cells, 12);
  }
  return text;
}

std::string summary_of(const Steps& steps, const AgreeBench& bench, double bare_s) {
  const int first = std::min(kFirstSteps, bench.steps - 1);
  std::vector<std::vector<double>> control(4);
  std::int64_t names = 0;
  for (int step = first; step < bench.steps; ++step) {
    for (std::size_t i = 0; i < 4; ++i) control[i].push_back(static_cast<double>(steps.of(step)[i]));
    names += steps.of(step)[2];
  }
  const double submit_us = median({steps.submit_s.begin() + first, steps.submit_s.end()}) * 1e6;
  const double wait_us = median({steps.wait_s.begin() + first, steps.wait_s.end()}) * 1e6;
  return "# steps from " + std::to_string(first) + " on, medians: submit " + fixed(submit_us, 1) +
         " us; last submit to last work finished " + fixed(wait_us, 1) + " us; the bucket's all_reduce alone " +
         fixed(bare_s * 1e6, 1) + " us; agreeing, packing and delivering " + fixed(wait_us - bare_s * 1e6, 1) +
         " us per step\n# messages per step " + fixed(median(control[0]), 1) + ", bytes per step " +
         fixed(median(control[1]), 1) + "; messages with names in all these steps " + std::to_string(names) +
         ", with bits per step " + fixed(median(control[3]), 1) + "\n";
}

}  // namespace

int bench_agree(Session& session, const AgreeBench& bench) {
  print(session, machine_header(session) + "# " + std::to_string(bench.tensors) + " gradients of " +
                     std::to_string(kTensorElements) +
                     " float32 per step; agree us: from the last submit to the last work finished;\n"
                     "# times of the slowest rank, messages and bytes of all ranks' coordinators together\n");
  barrier(session);
  const Steps steps = run_steps(session, bench);
  const double bare_s = bare_bucket(session, bench);
  print(session, table_of(steps, bench) + summary_of(steps, bench, bare_s));
  return 0;
}

}  // namespace horo::tools
