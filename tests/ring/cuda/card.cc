#include "tests/ring/cuda/card.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace horo::test {
namespace {

void expect_done(int error) {
  EXPECT_EQ(error, 0);
}

const CudaApi* open_table(const char* path) {
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) std::abort();
  return reinterpret_cast<const CudaApi* (*)()>(::dlsym(library, kCudaApiEntry))();
}

bool has_kernels(const CudaApi& api) {
  std::array<char, 300> why{};
  api.enter(0);
  const int error = api.load_kernels(why.data(), why.size());
  api.leave();
  EXPECT_TRUE(error == 0 || std::strstr(why.data(), "built without") != nullptr) << why.data();
  return error == 0;
}

}  // namespace

const CudaApi* table_of(const char* name) {
  // The plug-in's dlopen("libcuda.so.1") finds the library of that name that is loaded already.
  static void* const driver = ::dlopen(HORO_FAKE_DRIVER, RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) std::abort();
  const CudaApi* const api = open_table(std::strcmp(name, "fake") == 0 ? HORO_FAKE_CUDA : HORO_CUDA_PLUGIN);
  int devices = 0;
  std::array<char, 300> why{};
  EXPECT_EQ(api->start(&devices, why.data(), why.size()), 0) << why.data();
  return has_kernels(*api) ? api : nullptr;
}

Card::Card(const CudaApi& api, std::size_t bytes) : api_(api) {
  expect_done(api.enter(0));
  expect_done(api.stream_create(&stream_));
  expect_done(api.allocate_blocking(&memory_, bytes));
}

Card::~Card() {
  finish();
  expect_done(api_.free_blocking(memory_));
  expect_done(api_.stream_destroy(stream_));
  expect_done(api_.leave());
}

void Card::write(std::size_t at, std::span<const std::byte> bytes) {
  expect_done(api_.copy_to_device(memory() + at, bytes.data(), bytes.size(), stream_));
  finish();
}

std::vector<std::byte> Card::read(std::size_t at, std::size_t bytes) {
  std::vector<std::byte> values(bytes);
  expect_done(api_.copy_to_host(values.data(), memory() + at, bytes, stream_));
  finish();
  return values;
}

void Card::finish() {
  CudaEvent event = nullptr;
  expect_done(api_.event_create(&event));
  expect_done(api_.event_record(event, stream_));
  expect_done(api_.event_wait_blocking(event));
  expect_done(api_.event_destroy(event));
}

}  // namespace horo::test
