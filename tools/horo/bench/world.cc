#include "tools/horo/bench/world.h"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "horo/horo.h"
#include "tools/horo/machine/cores.h"

namespace horo::tools {
namespace {

TensorSpec vector_spec(const char* name, ReduceOp op, DType dtype, std::size_t size) {
  TensorSpec spec;
  spec.name = std::string(name) + "." + std::to_string(size);
  spec.op = op;
  spec.dtype = dtype;
  spec.shape = {static_cast<std::int64_t>(size)};
  return spec;
}

}  // namespace

std::string machine_header(const Session& session) {
  return machine_header(session.topology()) + "# HORO_TRANSPORT=" + session.config().transport + "\n";
}

std::string machine_header(const Topology& topology) {
  std::ostringstream out;
  out << "# horo " << kVersion << " on " << cpu_model() << ", " << usable_cores() << " cores, " << kernel_release()
      << "; load average at the start " << fixed(load_average(), 2) << "\n"
      << "# " << topology.size << " ranks as processes, " << topology.local_size << " of them on this host\n";
  return out.str();
}

std::vector<double> max_over_ranks(Session& session, const std::vector<double>& values) {
  std::vector<double> out(values.size());
  session.run(vector_spec("bench.max", ReduceOp::kMax, DType::kFloat64, values.size()), values.data(), out.data());
  return out;
}

std::vector<std::int64_t> sum_over_ranks(Session& session, const std::vector<std::int64_t>& values) {
  std::vector<std::int64_t> out(values.size());
  session.run(vector_spec("bench.sum", ReduceOp::kSum, DType::kInt64, values.size()), values.data(), out.data());
  return out;
}

void barrier(Session& session) {
  TensorSpec spec;
  spec.name = "bench.barrier";
  spec.kind = CollectiveKind::kBarrier;
  session.run(spec, nullptr, nullptr);
}

double bus_factor(CollectiveKind kind, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (kind == CollectiveKind::kAllReduce) return 2 * others;
  return kind == CollectiveKind::kReduce || kind == CollectiveKind::kBroadcast ? 1 : others;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

std::string row(const std::vector<std::string>& cells, int width) {
  std::ostringstream out;
  for (const std::string& cell : cells) out << std::setw(width) << cell;
  out << "\n";
  return out.str();
}

void print(const Session& session, const std::string& text) {
  if (session.topology().rank == 0) std::cout << text << std::flush;
}

}  // namespace horo::tools
