// Facts of this machine (processor, kernel, load) for the headers of benchmarks and the doctor's report.
#pragma once

#include <string>

namespace horo::tools {

std::string cpu_model();       // of /proc/cpuinfo, or "unknown processor"
std::string kernel_release();  // "Linux 6.1.0", or "unknown kernel"
double load_average();         // of the last minute; -1: unknown

// The first line of a file, or "".
std::string first_line_of(const std::string& path);

// "1234.5": `value` in fixed notation with that many decimals.
std::string fixed(double value, int decimals);

}  // namespace horo::tools
