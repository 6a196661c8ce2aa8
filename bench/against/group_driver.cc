#include "bench/against/group_driver.h"

#include <cstdio>
#include <memory>
#include <numeric>

#include "bench/peers/harness.h"
#include "horo/engine/startup_agreement.h"
#include "horo/horo.h"
#include "ring/group.h"
#include "ring/links.h"
#include "ring/schedule/schedule_parts.h"
#include "tools/horo/bench/lists.h"

namespace horo::bench {
namespace {

constexpr std::chrono::minutes kTaskTime{10};

class GroupDriver {
 public:
  GroupDriver(const Config& config, bool has_bucket, Order order)
      : links_(find_others(config, 0)), has_bucket_(has_bucket) {
    collective_.order = order;
    collective_.channel = 1;
    const StartupAgreement compared = compare_settings(links_, config, counters_);
    std::vector<int> members(compared.hosts.size());
    std::iota(members.begin(), members.end(), 0);
    ids_.assign(members.begin(), members.end());
    group_ = make_transport_group(links_, {members, 0, compared.hosts, compared.costs}, config, counters_);
  }

  int32_t run_tasks() {
    const harness_driver driver{.user = this,
                                .version = kVersion,
                                .allocate = has_bucket_ ? allocate : nullptr,
                                .prepare = prepare,
                                .run = run,
                                .finish = finish};
    return harness_run(group_->rank(), group_->size(), &driver);
  }

 private:
  static int32_t allocate(void* user, harness_task* task) {
    auto& self = *static_cast<GroupDriver*>(user);
    self.in_ = self.group_->allocate(task->in_bytes);
    if (task->in_place == 0) self.out_ = self.group_->allocate(task->out_bytes);
    task->in = self.in_.data.get();
    task->out = task->in_place != 0 ? task->in : self.out_.data.get();
    return 0;
  }

  static int32_t prepare(void* user, const harness_task* task, char* error) {
    auto& self = *static_cast<GroupDriver*>(user);
    try {
      self.set(*task);
      return 0;
    } catch (const std::exception& problem) {
      std::snprintf(error, HARNESS_ERROR_BYTES, "%s", problem.what());
      return 1;
    }
  }

  void set(const harness_task& task) {
    Collective& c = collective_;
    const auto size = static_cast<std::size_t>(task.size);
    c.kind = tools::kind_of("--collective", task.collective);
    c.contributors = reduces(c.kind) ? ids_ : std::vector<std::int64_t>();
    c.dtype = tools::dtype_of("--dtype", task.dtype);
    const bool is_whole = c.kind == CollectiveKind::kAllReduce || c.kind == CollectiveKind::kReduce ||
                          c.kind == CollectiveKind::kBroadcast;
    if (is_whole) {
      c.counts = {task.count};
    } else {
      c.counts.assign(c.kind == CollectiveKind::kAllToAll ? size * size : size, task.count / size);
    }
    c.in = {.data = static_cast<std::byte*>(task.in), .bytes = task.in_bytes};
    c.out = {.data = static_cast<std::byte*>(task.out), .bytes = task.out_bytes};
    c.deadline = Clock::now() + kTaskTime;
    c.what = "the harness's buffer";
  }

  static int32_t run(void* user) {
    auto& self = *static_cast<GroupDriver*>(user);
    self.collective_.plan += 2;
    try {
      self.group_->run(self.collective_);
      return 0;
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "horo: %s\n", problem.what());
      return 1;
    }
  }

  static void finish(void* user) {
    auto& self = *static_cast<GroupDriver*>(user);
    self.in_ = {};
    self.out_ = {};
  }

  Counters counters_;
  Links links_;
  const bool has_bucket_;
  std::vector<std::int64_t> ids_;
  std::unique_ptr<Group> group_;
  Allocation in_, out_;
  Collective collective_;
};

}  // namespace

int run_group_driver(const std::string& path) {
  const Order order = path == "mpi-fast" ? Order::kFast : Order::kCanonical;
  return GroupDriver(config_from_environment(), path != "shm-user", order).run_tasks();
}

}  // namespace horo::bench
