// The functions that nvcc made of kernels.cu are those that the plug-in asks for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "ring/cuda/kernel_args.h"

namespace horo {
namespace {

std::set<std::string> names_in_use() {
  std::set<std::string> names{kCopyKernel};
  for (int type = 0; const auto dtype = dtype_from(type); ++type) {
    for (int number = 0; const auto op = reduce_op_from(number); ++number) {
      if (has_kernel(*dtype, *op)) names.insert(reduce_kernel(*dtype, *op).data());
    }
  }
  return names;
}

TEST(KernelNames, AreThoseOfAllReductionsAndCopies) {
  EXPECT_THAT(kernel_names(), testing::UnorderedElementsAreArray(names_in_use()));
}

TEST(KernelNames, AreThoseOfTheImage) {
  std::ifstream ptx(HORO_KERNEL_PTX);
  if (!ptx) GTEST_SKIP() << "built without nvcc";
  std::set<std::string> names;
  const std::regex entry(R"(\.entry (\w+)\()");
  for (std::string line; std::getline(ptx, line);) {
    std::smatch found;
    if (std::regex_search(line, found, entry)) names.insert(found[1]);
  }
  EXPECT_THAT(names, testing::ContainerEq(names_in_use()));
}

}  // namespace
}  // namespace horo
