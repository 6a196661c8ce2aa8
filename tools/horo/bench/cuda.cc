// horo bench cuda: what a kernel reads and writes per second, beside a copy on the device. The contestants take turns
// in every round; each figure is the median over rounds. A turn ends when the host sees the event behind its kernels,
// so small sizes measure launches.

#include <array>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "horo/base/config.h"
#include "horo/base/say.h"
#include "ring/cuda/device_memory.h"
#include "ring/reduce/tree.h"
#include "tools/horo/bench/bench.h"
#include "tools/horo/bench/cuda_bits.h"
#include "tools/horo/bench/world.h"
#include "tools/horo/machine/facts.h"
#include "tools/horo/machine/python_folders.h"

namespace horo::tools {
namespace {

constexpr int kTurn = 8;  // kernels of a turn
constexpr std::size_t kMostBuffers = 9;
constexpr std::size_t kRows = 1'000;
constexpr DType kSummed[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};

struct CudaContestant {
  std::string name;
  std::size_t moved_bytes;  // read and written
  std::function<int()> run;
  std::vector<double> rates{};  // GB/s of each round
};

class CudaRace {
 public:
  CudaRace(const CudaDevice& device, std::size_t bytes)
      : device_(device), stream_(device), bytes_(bytes / 4096 * 4096), memory_(device, "the copies of horo bench") {
    memory_.at_least(kMostBuffers * bytes_);
    add("copy", 2, [this] { return device_.api().copy_on_device(at(0), at(1), bytes_, stream_.handle()); });
    add_rows("pack of 1000", 0);
    add_rows("pack of 1000, apart by 4 bytes", 4);
    for (const DType dtype : kSummed) add_sum(dtype, 2);
    for (const std::size_t inputs : {1, 4, 8}) add_sum(DType::kFloat32, inputs);
    add_sum(DType::kInt32, 2);
  }

  std::vector<CudaContestant>& run(int rounds) {
    for (int round = -1; round < rounds; ++round) {
      for (CudaContestant& each : contestants_) {
        const TimePoint begin = Clock::now();
        for (int i = 0; i < kTurn; ++i) device_.check(each.run(), each.name.c_str());
        stream_.finish();
        const double taken = seconds_since(begin);
        if (round >= 0) each.rates.push_back(static_cast<double>(each.moved_bytes) * kTurn / taken / 1e9);
      }
    }
    return contestants_;
  }

 private:
  std::byte* at(std::size_t buffer) const { return memory_.data() + buffer * bytes_; }

  void add(std::string name, std::size_t buffers, std::function<int()> run) {
    contestants_.push_back({std::move(name), buffers * bytes_, std::move(run)});
  }

  // Rows of equal size, between memory whose distance is a multiple of 16 bytes plus `apart`.
  void add_rows(std::string name, std::size_t apart) {
    const std::size_t each = bytes_ / kRows / 16 * 16;
    std::vector<CopyRow> rows;
    for (std::size_t i = 0; i < kRows; ++i) {
      rows.push_back({at(1) + i * each, at(0) + i * each + apart, each - apart});
    }
    add(std::move(name), 2,
        [this, rows] { return device_.api().copy_rows(rows.data(), rows.size(), stream_.handle()); });
  }

  void add_sum(DType dtype, std::size_t inputs) {
    std::vector<std::int64_t> ids(inputs);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<const void*> from;
    for (std::size_t i = 0; i < inputs; ++i) from.push_back(at(i + 1));
    const auto run = [this, dtype, from, tree = canonical_tree(ids)] {
      DeviceReduction sum;
      sum.dtype = dtype, sum.inputs = from.data(), sum.input_count = from.size();
      sum.tree = tree.data(), sum.steps = tree.size();
      sum.out = at(0), sum.count = bytes_ / size_of(dtype);
      return device_.api().reduce(&sum, stream_.handle());
    };
    add(say("sum of ", inputs, " ", name_of(dtype)), inputs + 1, run);
  }

  const CudaDevice& device_;
  DeviceStream stream_;
  const std::size_t bytes_;
  DeviceScratch memory_;
  std::vector<CudaContestant> contestants_;
};

void write_cuda(const std::string& path, const nlohmann::json& report) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << report.dump(1) << "\n";
  if (!file) throw std::invalid_argument("--json " + path + ": cannot be written");
}

std::string device_text(const CudaDevice& device) {
  std::array<char, 300> text{};
  device.check(device.api().describe(device.number(), text.data(), text.size()), "describing the device");
  return text.data();
}

void need_kernels(const CudaDevice& device) {
  std::array<char, 400> why{};
  if (device.api().load_kernels(why.data(), why.size()) == 0) return;
  throw std::invalid_argument(say(device.name(), " has no kernels: ", why.data()));
}

}  // namespace

int bench_cuda(const CudaBench& bench) {
  Config config;
  config.cuda_library = installed_cuda_plugin();
  CudaDevices devices(config);
  const CudaDevice& device = devices.device(bench.device);
  const OnDevice here(device);
  need_kernels(device);
  const CudaBits bits = compare_cuda(device, bench.most_elements);
  std::cout << "# " << device_text(device) << "\n# bits: " << bits.checked << " reductions compared with the CPU, "
            << bits.wrong.size() << " differ\n";
  for (const std::string& each : bits.wrong) std::cout << "# WRONG: " << each << "\n";
  std::cout << "# GB/s read and written, medians of " << bench.rounds << " interleaved rounds; inputs of "
            << bench.bytes << " bytes\n"
            << std::flush;
  nlohmann::json rates = nlohmann::json::object();
  CudaRace race(device, bench.bytes);
  for (const CudaContestant& each : race.run(bench.rounds)) {
    const double rate = median(each.rates);
    rates[each.name] = rate;
    std::cout << std::setw(10) << fixed(rate, 1) << "  " << each.name << "\n" << std::flush;
  }
  write_cuda(bench.json_file,
             {{"device", device_text(device)}, {"checked", bits.checked}, {"wrong", bits.wrong}, {"gb_per_s", rates}});
  return bits.wrong.empty() ? 0 : 1;
}

}  // namespace horo::tools
