// The fuzz targets without a fuzzer: the corpus, and mutations of it from a fixed seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <stdexcept>

#include "tests/base/bytes.h"
#include "tests/fuzz/targets.h"

namespace horo {

// For the names of the tests.
inline void PrintTo(const FuzzTarget& target, std::ostream* out) {
  *out << target.name;
}

namespace {

using Bytes = std::vector<std::byte>;

// tests/fuzz/corpus/NAME.hex: an input per line.
std::vector<Bytes> corpus_of(std::string_view name) {
  std::ifstream file(HORO_SOURCE_DIR "/tests/fuzz/corpus/" + std::string(name) + ".hex");
  std::vector<Bytes> inputs;
  for (std::string line; std::getline(file, line);) inputs.push_back(from_hex(line));
  return inputs;
}

class Mutator {
 public:
  // Up to four changes: a bit, a byte, a cut, a byte more, a byte less, or a piece of another input.
  Bytes mutated(Bytes bytes, const Bytes& other) {
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      if (bytes.empty()) bytes.push_back(any());
      const auto at = static_cast<std::ptrdiff_t>(below(bytes.size()));
      const std::size_t what = below(6);
      if (what == 0) bytes[static_cast<std::size_t>(at)] ^= std::byte{1} << below(8);
      if (what == 1) bytes[static_cast<std::size_t>(at)] = any();
      if (what == 2) bytes.resize(static_cast<std::size_t>(at));
      if (what == 3) bytes.insert(bytes.begin() + at, any());
      if (what == 4) bytes.erase(bytes.begin() + at);
      if (what == 5) bytes.insert(bytes.begin() + at, other.begin(), other.begin() + offset_in(other));
    }
    return bytes;
  }
  std::size_t below(std::size_t end) { return random_() % end; }

 private:
  std::byte any() { return static_cast<std::byte>(random_()); }
  std::ptrdiff_t offset_in(const Bytes& bytes) { return static_cast<std::ptrdiff_t>(below(bytes.size() + 1)); }

  std::mt19937_64 random_{20'260'101};
};

class FuzzSmoke : public testing::TestWithParam<FuzzTarget> {};

TEST_P(FuzzSmoke, EveryInputIsUnderstoodOrRefused) {
  const std::vector<Bytes> corpus = corpus_of(GetParam().name);
  ASSERT_FALSE(corpus.empty());
  const int inputs = GetParam().inputs;
  int accepted = 0;
  for (const Bytes& input : corpus) accepted += GetParam().run(input) ? 1 : 0;
  EXPECT_GT(accepted, 0) << "the corpus reaches nothing";
  Mutator mutator;
  for (int i = 0; i < inputs; ++i) {
    const Bytes& other = corpus[mutator.below(corpus.size())];
    accepted += GetParam().run(mutator.mutated(corpus[mutator.below(corpus.size())], other)) ? 1 : 0;
  }
  EXPECT_GT(accepted, inputs / 1000) << "the corpus is of another format: make it anew with tools/fuzz --save";
  EXPECT_LT(accepted, inputs) << "the inputs are too tame to break anything";
}

std::string name_of_target(const testing::TestParamInfo<FuzzTarget>& info) {
  return std::string(info.param.name);
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzSmoke, testing::ValuesIn(fuzz_targets().begin(), fuzz_targets().end()),
                         name_of_target);

}  // namespace
}  // namespace horo
