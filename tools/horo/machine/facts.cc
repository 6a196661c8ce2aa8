#include "tools/horo/machine/facts.h"

#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <sstream>

namespace horo::tools {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

std::string kernel_release() {
  utsname name{};
  return ::uname(&name) == 0 ? std::string(name.sysname) + " " + name.release : "unknown kernel";
}

double load_average() {
  double load = -1;
  return ::getloadavg(&load, 1) == 1 ? load : -1;
}

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string fixed(double value, int decimals) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(decimals) << value;
  return out.str();
}

}  // namespace horo::tools
