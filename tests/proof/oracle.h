// What a collective must end with, from its definition (ring/group.h) and the oracle's own arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/proof/elements.h"
#include "tests/proof/round.h"

namespace horo::proof {

using Bytes = std::vector<std::byte>;

// The binary trie over ascending ids, summed by recursion: split at the highest bit in which the ids differ. `bit`: the
// highest that is looked at.
Value canonical_sum(const Arithmetic& arithmetic, std::span<const std::int64_t> ids, std::span<const Value> values,
                    int bit = 62);

// The operation of the user's own that is drawn: neither commutative nor associative, so that one wrong turn in the
// tree changes all bits; the whole one mixes an element with those on the other side of the tensor.
int mix(std::byte* accumulator, const std::byte* value, std::uint64_t count, std::size_t element_bytes, bool whole);

class Oracle {
 public:
  Oracle(const Job& job, std::size_t members);

  // What each member brings; empty where its input is not read.
  const Bytes& input(std::size_t member) const { return inputs_[member]; }
  std::size_t output_bytes(std::size_t member) const;
  // Whether anything is written at all: a sum of nobody is not.
  bool writes_output() const;

  // What is wrong with what the member got, in words; "" if nothing.
  std::string judge(std::size_t member, std::span<const std::byte> output) const;

 private:
  void draw_inputs();
  void sum_up();
  Bytes mixed(std::span<const std::int64_t> ids, std::span<const std::size_t> members, int bit) const;
  void sum_up_coded();
  std::vector<float> coded_and_back(std::vector<float> values) const;
  std::size_t input_count(std::size_t member) const;
  std::size_t begin(std::size_t count) const;  // of a part, in elements
  std::size_t total() const { return begin(job_.counts.size()); }
  bool is_root(std::size_t member) const { return static_cast<int>(member) == job_.root; }
  Bytes expected(std::size_t member) const;
  Bytes part_of(const Bytes& bytes, std::size_t first, std::size_t count) const;

  std::vector<Value> terms_at(std::size_t element) const;
  std::string judge_bytes(const Bytes& expected, std::span<const std::byte> output) const;
  std::string judge_bound(std::size_t first, std::span<const std::byte> output) const;
  std::string judge_number(double got, std::span<const double> terms, long double sum, long double slack) const;

  const Job& job_;
  const std::size_t n_;
  const std::size_t element_bytes_;
  const Arithmetic arithmetic_;
  std::vector<Bytes> inputs_;
  std::vector<std::int64_t> ids_;          // of those who contribute
  std::vector<std::size_t> contributors_;  // members
  Bytes sum_;                              // canonical
};

}  // namespace horo::proof
