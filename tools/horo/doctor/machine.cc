// The resources of the machine that this process may use: cores, memory, shared memory, limits. In a container they may
// be fewer than those of the machine, which only the cgroup shows.
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "horo/horo.h"
#include "ring/os/cgroup.h"
#include "tools/horo/doctor/doctor.h"
#include "tools/horo/machine/cores.h"
#include "tools/horo/machine/facts.h"

namespace horo::tools {
namespace {

constexpr std::int64_t kSmallShmBytes = 1LL << 30;
constexpr std::int64_t kLeastDescriptors = 256;  // for a Python process with a data loader
constexpr std::int64_t kDescriptorsPerRank = 3;  // rank 0 during the start: exchange, data and control connection
constexpr std::int64_t kLeastAddressBytes = 4LL << 30;
constexpr std::int64_t kLeastProcesses = 256;  // threads count as well

// "0-3,8": the format of taskset.
std::string mask_text(const cpu_set_t& cores) {
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &cores)) continue;
    int last = core;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &cores)) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(core) + (last > core ? "-" + std::to_string(last) : "");
    core = last;
  }
  return text;
}

Value affinity() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof(cores), &cores) != 0) return {};
  return mask_text(cores);
}

Value value_of(const std::optional<std::int64_t>& limit) {
  return limit ? Value(*limit) : Value();
}

void add_cgroup(Section& machine, DoctorReport& report) {
  const CgroupLimits limits = cgroup_limits();
  machine.add("cgroup_version", limits.version == 0 ? Value() : Value(std::int64_t{limits.version}));
  machine.add("cgroup_cpu_quota_percent", value_of(limits.cpu_quota_percent));
  machine.add("cgroup_memory_limit_bytes", value_of(limits.memory_bytes));
  const auto& quota = limits.cpu_quota_percent;
  if (!quota || *quota >= 100 * std::int64_t{usable_cores()}) return;
  report.hints.push_back({"the cgroup gives this process the time of " + fixed(double(*quota) / 100, 2) +
                              " cores, but " + std::to_string(usable_cores()) +
                              " cores are usable: more threads than that are throttled",
                          "set OMP_NUM_THREADS so that all ranks of this host together have at most that many threads, "
                          "or raise the quota (docker run --cpus, the CPU limit of a pod)"});
}

void add_shm(Section& machine, DoctorReport& report) {
  struct statvfs status {};
  if (::statvfs("/dev/shm", &status) != 0) {
    machine.add("shm_bytes", {});
    report.hints.push_back({"there is no /dev/shm: workers of a torch DataLoader cannot pass tensors",
                            "mount a tmpfs there: mount -t tmpfs tmpfs /dev/shm"});
    return;
  }
  const auto block = static_cast<std::int64_t>(status.f_frsize);
  const std::int64_t size = static_cast<std::int64_t>(status.f_blocks) * block;
  machine.add("shm_bytes", size);
  machine.add("shm_free_bytes", static_cast<std::int64_t>(status.f_bavail) * block);
  if (size >= kSmallShmBytes) return;
  report.hints.push_back({"/dev/shm holds " + std::to_string(size >> 20) +
                              " MiB only: workers of a torch DataLoader pass "
                              "tensors there and die with SIGBUS when it is full",
                          "make it larger: docker run --shm-size=8g, or mount -o remount,size=8G /dev/shm"});
}

// "always within_size advise [never] deny force": the word in brackets is in effect.
void add_huge_pages(Section& machine, DoctorReport& report) {
  const std::string words = first_line_of("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const std::size_t begin = words.find('['), end = words.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) {
    machine.add("shm_huge_pages", {});
    return;
  }
  const std::string chosen = words.substr(begin + 1, end - begin - 1);
  machine.add("shm_huge_pages", chosen);
  if (chosen != "never" && chosen != "deny") return;
  report.hints.push_back({"shared memory has no huge pages: buckets of tens of MiB are summed some percent slower",
                          "as root, on the host: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"});
}

Value limit_of(rlim_t limit) {
  if (limit == RLIM_INFINITY) return std::string("unlimited");
  return static_cast<std::int64_t>(limit);
}

// Adds both limits. Returns the soft limit, or INT64_MAX if there is none.
std::int64_t add_limit(Section& limits, const char* name, decltype(RLIMIT_CORE) which) {
  rlimit limit{};
  if (::getrlimit(which, &limit) != 0) return INT64_MAX;
  limits.add(std::string(name) + "_soft", limit_of(limit.rlim_cur));
  limits.add(std::string(name) + "_hard", limit_of(limit.rlim_max));
  return limit.rlim_cur > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(limit.rlim_cur);
}

std::int64_t ranks_wanted() {
  const char* text = std::getenv("HORO_SIZE");
  std::int64_t size = 2;
  if (text != nullptr) std::from_chars(text, text + std::string_view(text).size(), size);
  return std::clamp<std::int64_t>(size, 1, 1 << 20);
}

}  // namespace

void examine_machine(DoctorReport& report) {
  Section machine{"machine", {}};
  machine.add("kernel", kernel_release());
  machine.add("processor", cpu_model());
  machine.add("cores_online", static_cast<std::int64_t>(::sysconf(_SC_NPROCESSORS_ONLN)));
  machine.add("cores_usable", std::int64_t{usable_cores()});
  machine.add("affinity", affinity());
  struct sysinfo info {};
  const bool known = ::sysinfo(&info) == 0;
  machine.add("memory_bytes", known ? Value(static_cast<std::int64_t>(info.totalram * info.mem_unit)) : Value());
  add_cgroup(machine, report);
  add_shm(machine, report);
  add_huge_pages(machine, report);
  report.sections.push_back(std::move(machine));
}

void examine_limits(DoctorReport& report) {
  Section limits{"limits", {}};
  const std::int64_t files = add_limit(limits, "open_files", RLIMIT_NOFILE);
  const std::int64_t processes = add_limit(limits, "processes", RLIMIT_NPROC);
  const std::int64_t memory = add_limit(limits, "address_space_bytes", RLIMIT_AS);
  add_limit(limits, "locked_memory_bytes", RLIMIT_MEMLOCK);
  add_limit(limits, "core_bytes", RLIMIT_CORE);
  const std::int64_t needed = kLeastDescriptors + kDescriptorsPerRank * ranks_wanted();
  if (files < needed) {
    report.problems.push_back({"this process may open " + std::to_string(files) +
                                   " files and sockets (RLIMIT_NOFILE); a "
                                   "rank of a job of " +
                                   std::to_string(ranks_wanted()) + " needs up to " + std::to_string(needed),
                               "raise it before the job starts: ulimit -n " +
                                   std::to_string(std::max<std::int64_t>(needed, 4096)) +
                                   ", or nofile in /etc/security/limits.conf, or docker run --ulimit nofile=65536"});
  }
  if (processes < kLeastProcesses) {
    report.problems.push_back(
        {"this user may have " + std::to_string(processes) + " processes and threads (RLIMIT_NPROC)",
         "raise it before the job starts: ulimit -u 4096, or nproc in /etc/security/limits.conf"});
  }
  if (memory < kLeastAddressBytes) {
    report.problems.push_back(
        {"this process may use " + std::to_string(memory >> 20) +
             " MiB of address space (RLIMIT_AS): importing torch alone needs more",
         "lift it before the job starts: ulimit -v unlimited; a cgroup is the better memory limit"});
  }
  report.sections.push_back(std::move(limits));
}

}  // namespace horo::tools
