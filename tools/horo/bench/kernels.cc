// The kernels of ring/reduce/reduce.h in one thread: bytes of the result per second by type, number of inputs and
// instruction set, beside memcpy and a = b + c of float32 of the same size. All take turns in every round, so that
// other load on the machine affects them equally; each figure is the median over rounds. Every result is compared with
// that of the scalar kernels.

#include "ring/reduce/kernels.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "tools/horo/bench/bench.h"
#include "tools/horo/bench/world.h"
#include "tools/horo/machine/cores.h"

namespace horo::tools {
namespace {

constexpr int kInputs[] = {2, 3, 4, 8};
constexpr int kMostInputs = 8;
constexpr int kColumn = 13;
constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64,    DType::kBFloat16,  DType::kFloat16,
                            DType::kInt32,   DType::kFloat8E4m3, DType::kFloat8E5m2};
constexpr std::size_t kStackBytes = 4 * kKernelBlock * 16;  // the stack of a tree of 8 has at most 4 entries
constexpr std::size_t kBytesPerTurn = 1 << 20;              // small sums are repeated until a turn has this many bytes

struct Place {
  const char* name;
  std::size_t bytes;  // of each input and of the result
};

// Memory for the inputs, the result and the expected result, in whole elements of every type. The values are chosen so
// that sums stay finite: NaNs could not be compared.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes / 8 * 8), memory_((kMostInputs + 2) * bytes_) {
    std::minstd_rand random(1);
    for (std::size_t i = 0; i < kMostInputs * bytes_; ++i) memory_[i] = static_cast<std::byte>(random() % 0x38);
  }
  std::byte* input(int i) { return memory_.data() + static_cast<std::size_t>(i) * bytes_; }
  std::byte* out() { return input(kMostInputs); }
  std::byte* expected() { return input(kMostInputs + 1); }
  std::size_t bytes() const { return bytes_; }

 private:
  const std::size_t bytes_;
  std::vector<std::byte> memory_;
};

struct KernelVariant {
  std::string name;
  std::function<void()> run;
  std::vector<double> rates{};  // GB/s of each round
};

void time_in_turns(std::vector<KernelVariant>& variants, std::size_t bytes, int rounds) {
  const std::size_t repeats = std::max<std::size_t>(1, kBytesPerTurn / bytes);
  for (int round = -1; round < rounds; ++round) {
    for (KernelVariant& variant : variants) {
      const TimePoint begin = Clock::now();
      for (std::size_t i = 0; i < repeats; ++i) variant.run();
      const double taken = seconds_since(begin);
      if (round >= 0) variant.rates.push_back(static_cast<double>(bytes * repeats) / taken / 1e9);
    }
  }
}

// Not inlined, so that the compiler does not merge repeated calls.
[[gnu::noinline]] void add(float* a, const float* b, const float* c, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) a[i] = b[i] + c[i];
}

class Measure {
 public:
  Measure(Memory& memory, DType dtype, int inputs) : memory_(memory), dtype_(dtype), stack_(kStackBytes) {
    std::vector<std::int64_t> ids;
    for (int i = 0; i < inputs; ++i) {
      ids.push_back(i);
      inputs_.push_back({memory.input(i)});
    }
    tree_ = canonical_tree(ids);
    run(scalar_kernels(), memory.expected());
  }

  void run(const Kernels& kernels, std::byte* out) {
    kernels.reduce_tree(dtype_, ReduceOp::kSum,
                        {tree_.data(),
                         tree_.size(),
                         inputs_.data(),
                         &out,
                         1,
                         memory_.bytes() / size_of(dtype_),
                         {},
                         false,
                         regular_inputs(tree_),
                         stack_.data()});
  }

  bool is_right(const Kernels& kernels) {
    std::memset(memory_.out(), 0xff, memory_.bytes());
    run(kernels, memory_.out());
    return std::memcmp(memory_.out(), memory_.expected(), memory_.bytes()) == 0;
  }

 private:
  Memory& memory_;
  const DType dtype_;
  std::vector<TreeStep> tree_;
  std::vector<TreeInput> inputs_;
  std::vector<std::byte> stack_;
};

// One line of the table. False if a result was wrong.
bool measure(const Place& place, Memory& memory, DType dtype, int inputs, int rounds) {
  Measure sums(memory, dtype, inputs);
  const std::size_t bytes = memory.bytes();
  std::vector<KernelVariant> all;
  all.push_back({"memcpy", [&] { std::memcpy(memory.out(), memory.input(0), bytes); }});
  all.push_back({"a=b+c", [&] {
                   add(reinterpret_cast<float*>(memory.out()), reinterpret_cast<const float*>(memory.input(0)),
                       reinterpret_cast<const float*>(memory.input(1)), bytes / sizeof(float));
                 }});
  bool right = true;
  for (const Kernels* kernels : all_kernels()) {
    right = right && sums.is_right(*kernels);
    all.push_back({kernels->name, [&sums, &memory, kernels] { sums.run(*kernels, memory.out()); }});
  }
  time_in_turns(all, bytes, rounds);
  std::vector<std::string> cells{place.name, std::string(name_of(dtype)), std::to_string(inputs)};
  for (const KernelVariant& each : all) cells.push_back(fixed(median(each.rates), 2));
  cells.emplace_back(right ? "right" : "WRONG");
  std::cout << row(cells, kColumn) << std::flush;
  return right;
}

}  // namespace

int bench_kernels(const KernelsBench& bench) {
  const Place places[] = {{"cache", bench.cache_bytes}, {"memory", bench.memory_bytes}};
  std::cout << "# " << cpu_model() << ", " << usable_cores() << " cores, " << kernel_release() << ", load "
            << fixed(load_average(), 2) << "\n# GB/s of the result, one thread, medians of " << bench.rounds
            << " interleaved rounds; cache: " << bench.cache_bytes
            << " bytes in each input, memory: " << bench.memory_bytes << "\n";
  std::vector<std::string> head{"where", "type", "inputs", "memcpy", "a=b+c"};
  for (const Kernels* kernels : all_kernels()) head.emplace_back(kernels->name);
  head.emplace_back("result");
  std::cout << row(head, kColumn) << std::flush;
  bool right = true;
  for (const Place& place : places) {
    Memory memory(place.bytes);
    for (const DType dtype : kTypes) {
      for (const int inputs : kInputs) right = measure(place, memory, dtype, inputs, bench.rounds) && right;
    }
  }
  return right ? 0 : 1;
}

}  // namespace horo::tools
