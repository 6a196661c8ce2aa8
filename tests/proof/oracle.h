// The expected result of a collective, from its definition (ring/collective.h) and independent arithmetic.
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

// The canonical sum over ascending ids, by recursion: the ids are split at the highest bit in which they differ. `bit`:
// the highest bit to consider.
Value canonical_sum(const Arithmetic& arithmetic, std::span<const std::int64_t> ids, std::span<const Value> values,
                    int bit = 62);

// The custom operation of random cases. It is neither commutative nor associative, so that any change of the tree
// changes all bits. If `whole`, it combines an element with the one on the other side of the tensor.
int mix(std::byte* accumulator, const std::byte* value, std::uint64_t count, std::size_t element_bytes, bool whole);

class Oracle {
 public:
  Oracle(const Job& job, std::size_t members);

  // The member's input; empty if it is not read.
  const Bytes& input(std::size_t member) const { return inputs_[member]; }
  std::size_t output_bytes(std::size_t member) const;
  // Whether the output is written. A sum without contributors is not.
  bool writes_output() const;

  // The first fault in the member's output, or "".
  std::string judge(std::size_t member, std::span<const std::byte> output) const;

 private:
  void draw_inputs();
  void sum_up();
  Bytes mixed(std::span<const std::int64_t> ids, std::span<const std::size_t> members, int bit) const;
  void sum_up_coded();
  std::vector<float> coded_and_back(std::vector<float> values) const;
  std::size_t input_count(std::size_t member) const;
  std::size_t begin(std::size_t count) const;  // first element of a part
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
  std::vector<std::int64_t> ids_;          // of the contributors
  std::vector<std::size_t> contributors_;  // as members
  Bytes sum_;                              // canonical
};

}  // namespace horo::proof
