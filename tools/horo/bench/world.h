// Shared code of the benchmarks: the header of a report, collectives over ranks, statistics, table rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horo/session.h"
#include "tools/horo/machine/facts.h"

namespace horo::tools {

// "# " lines: version, processor, cores, kernel, load, ranks, transport.
std::string machine_header(const Topology& topology);
std::string machine_header(const Session& session);
// Element-wise over all ranks. All ranks call them with the same number of values.
std::vector<double> max_over_ranks(Session& session, const std::vector<double>& values);
std::vector<std::int64_t> sum_over_ranks(Session& session, const std::vector<std::int64_t>& values);
void barrier(Session& session);

// busbw / algbw as defined by nccl-tests: the bytes that each rank must move with any algorithm, divided by the size.
double bus_factor(CollectiveKind kind, int ranks);

double median(std::vector<double> values);

inline double seconds_since(TimePoint begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One line of right-aligned columns, each `width` wide.
std::string row(const std::vector<std::string>& cells, int width);
// Prints and flushes if this is rank 0.
void print(const Session& session, const std::string& text);

}  // namespace horo::tools
