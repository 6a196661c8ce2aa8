// A device of a table of CUDA with a stream and memory, for tests of kernels.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "ring/cuda/cuda_api.h"

namespace horo::test {

// "fake": the fake of the table. "plugin": libhoro_cuda.so over the fake of the driver. Null: it has no kernels.
const CudaApi* table_of(const char* name);

// While it lives, device 0 is the current one of this thread.
class Card {
 public:
  Card(const CudaApi& api, std::size_t bytes);
  ~Card();
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  std::byte* memory() const { return static_cast<std::byte*>(memory_); }
  CudaStream stream() const { return stream_; }
  void write(std::size_t at, std::span<const std::byte> bytes);
  std::vector<std::byte> read(std::size_t at, std::size_t bytes);

 private:
  void finish();

  const CudaApi& api_;
  CudaStream stream_ = nullptr;
  void* memory_ = nullptr;
};

// Tests of each table.
class OnEachTable : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    api_ = table_of(GetParam());
    if (api_ == nullptr) GTEST_SKIP() << "the plug-in was built without nvcc";
  }
  const CudaApi& api() const { return *api_; }

 private:
  const CudaApi* api_ = nullptr;
};

}  // namespace horo::test
