// The rank program of `horo bench elastic`: compute, then a round of all_reduces and the barrier that commits it.
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <iostream>
#include <map>
#include <string_view>
#include <system_error>

#include "horo/base/fail_point.h"
#include "tools/horo/bench/bench.h"

namespace horo::tools {
namespace {

constexpr std::uint64_t kStream = 1;

Duration processor_time(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void compute(double ms) {
  const auto end = processor_time(CLOCK_THREAD_CPUTIME_ID) + std::chrono::duration<double, std::milli>(ms);
  while (processor_time(CLOCK_THREAD_CPUTIME_ID) < end) {
  }
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

// The moments of the last change of epoch, in the order of elastic_run.h. The engine thread writes them before it wakes
// the thread that reads them.
constexpr std::array<std::string_view, 5> kMoments = {"engine.freeze", "engine.frozen", "engine.view",
                                                      "engine.connected", "engine.installed"};
std::array<std::atomic<std::int64_t>, kMoments.size()> moments_ns{};

void note_moment(const char* name) noexcept {
  for (std::size_t i = 0; i < kMoments.size(); ++i) {
    if (kMoments[i] == name) moments_ns[i] = now_ns();
  }
}

// Memory in small pages, as most of a process's is: the kernel needs long to free it.
void hold_memory(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "--resident: mmap");
  ::madvise(memory, bytes, MADV_NOHUGEPAGE);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes; at += page) static_cast<volatile char*>(memory)[at] = 1;
}

class ElasticSteps {
 public:
  ElasticSteps(Session& session, const ElasticBench& bench)
      : session_(session), bench_(bench), id_(session.topology().rank) {
    for (int i = 0; i < bench.tensors; ++i) {
      const std::size_t count = bench.bytes / sizeof(float);
      keys_.push_back(session.declare(spec("gradient " + std::to_string(i), DType::kFloat32, count)));
      own_.emplace_back(count, 1.0F);
    }
    for (auto& tensor : own_) data_.push_back(tensor.data());
    mask_ = session.declare(spec("members", DType::kFloat64, 1));
    TensorSpec barrier = spec("commit", DType::kUint8, 0);
    barrier.kind = CollectiveKind::kBarrier;
    barrier.op = ReduceOp::kSum;
    barrier.stepwise = false;
    barrier.shape.clear();
    if (bench.has_barrier) commit_ = session.declare(barrier);
  }

  void run() {
    std::cout << "pid " << id_ << " " << ::getpid() << std::endl;
    for (int step = 0; bench_.steps == 0 || step < bench_.steps; ++step) run_step(static_cast<std::uint64_t>(step));
  }

 private:
  static TensorSpec spec(const std::string& name, DType dtype, std::size_t count) {
    TensorSpec spec;
    spec.name = name;
    spec.dtype = dtype;
    spec.op = dtype == DType::kFloat32 ? ReduceOp::kAverage : ReduceOp::kSum;
    spec.stepwise = true;
    spec.shape = {static_cast<std::int64_t>(count)};
    spec.round_stream = kStream;
    return spec;
  }

  void run_step(std::uint64_t step) {
    compute(bench_.compute_ms);
    session_.begin_round(0, kStream, step, 0);
    double members = static_cast<double>(std::uint64_t{1} << id_);
    std::vector<std::shared_ptr<Work>> works;
    for (std::size_t i = 0; i < keys_.size(); ++i) works.push_back(session_.submit({keys_[i], data_[i], data_[i]}));
    works.push_back(session_.submit({mask_, &members, &members}));
    if (bench_.has_barrier) works.push_back(session_.submit({commit_}));
    session_.wait(works, TimePoint::max());
    for (const auto& work : works) work->outcome();
    const std::int64_t now = now_ns();
    session_.step_end(0);
    if (bench_.in_buckets) move_into_buckets(works);
    const auto used = std::chrono::duration_cast<std::chrono::nanoseconds>(processor_time(CLOCK_PROCESS_CPUTIME_ID));
    if (members != members_) print_change();
    members_ = members;
    std::cout << "round " << id_ << " " << now << " " << static_cast<std::uint64_t>(members) << " " << used.count()
              << std::endl;
  }

  void print_change() const {
    std::cout << "change " << id_;
    for (const auto& moment : moments_ns) std::cout << " " << moment;
    std::cout << "\n";
  }

  void move_into_buckets(const std::vector<std::shared_ptr<Work>>& works) {
    const std::vector<BucketPlace> places = session_.places(std::span(works).first(keys_.size()));
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (places[i].plan == 0) continue;
      Allocation& bucket = buckets_[places[i].plan];
      if (!bucket.data) bucket = session_.allocate(0, places[i].bytes);
      data_[i] = reinterpret_cast<float*>(bucket.data.get() + places[i].offset);
    }
  }

  Session& session_;
  const ElasticBench& bench_;
  const int id_;  // the rank at the start
  std::vector<Key> keys_;
  std::vector<std::vector<float>> own_;
  std::vector<float*> data_;
  std::map<PlanId, Allocation> buckets_;
  Key mask_ = 0, commit_ = 0;
  double members_ = 0;  // of the last round
};

}  // namespace

int bench_elastic_rank(const Config& config, const ElasticBench& bench) {
  if (bench.resident_rank == config.rank) hold_memory(bench.resident_bytes);
  fail_point_hook = note_moment;
  Session session(config);
  ElasticSteps(session, bench).run();
  session.shutdown();
  return 0;
}

}  // namespace horo::tools
