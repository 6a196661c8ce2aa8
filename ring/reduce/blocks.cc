#include "ring/reduce/blocks.h"

#include <algorithm>
#include <cstring>

#include "ring/reduce/kernels.h"

namespace horo {
namespace {

constexpr int kMostRegular = kRegularTrees[0].inputs;

bool reads_plainly(const TreeInput& input, bool alike, const Scaling& scaling) {
  return input.partial ? alike : scaling.prescale == 1.0;
}

class BlockRunner {
 public:
  BlockRunner(const BlockLoops& loops, const TreeJob& job)
      : loops_(loops), job_(job), block_bytes_(kKernelBlock * loops.accumulator_bytes) {}

  // The accumulators of elements [begin, begin + count), count <= kKernelBlock.
  const std::byte* run(std::size_t begin, std::size_t count) const {
    std::size_t used = 0;
    const auto top = [&] { return job_.stack + (used - 1) * block_bytes_; };
    for (std::size_t at = 0; at < job_.steps; ++at) {
      if (job_.tree[at].input == TreeStep::kJoin) {
        --used;
        loops_.join(top(), top() + block_bytes_, count);
      } else if (joins(at + 1)) {
        fold(top(), input(at), begin, count);
        ++at;
      } else if (const RegularTree* regular = regular_at(at)) {
        ++used;
        push_sum(top(), *regular, at, begin, count);
        at += steps_of(*regular) - 1;
      } else {
        ++used;
        push(top(), input(at), begin, count);
      }
    }
    return job_.stack;
  }

 private:
  bool joins(std::size_t at) const { return at < job_.steps && job_.tree[at].input == TreeStep::kJoin; }
  const TreeInput& input(std::size_t at) const { return job_.inputs[job_.tree[at].input]; }
  bool is_plain(const TreeInput& input) const { return reads_plainly(input, loops_.alike, job_.scaling); }

  static std::size_t steps_of(const RegularTree& regular) { return static_cast<std::size_t>(2 * regular.inputs - 1); }

  // The largest regular tree that begins at this step of the program; null if there is none.
  const RegularTree* regular_at(std::size_t at) const {
    if (loops_.sum == nullptr) return nullptr;
    for (const RegularTree& regular : kRegularTrees) {
      if (fits(regular, at)) return &regular;
    }
    return nullptr;
  }

  bool fits(const RegularTree& regular, std::size_t at) const {
    const std::size_t steps = steps_of(regular);
    if (at + steps > job_.steps) return false;
    for (std::size_t i = 0; i < steps; ++i) {
      if (joins(at + i) != (regular.program[i] == 'j')) return false;
      if (!joins(at + i) && !is_plain(input(at + i))) return false;
    }
    return true;
  }

  const std::byte* place(const TreeInput& input, std::size_t begin) const {
    return input.data + begin * (input.partial ? loops_.accumulator_bytes : loops_.stored_bytes);
  }

  void push_sum(std::byte* top, const RegularTree& regular, std::size_t at, std::size_t begin,
                std::size_t count) const {
    const std::byte* from[kMostRegular];
    for (int k = 0; k < regular.inputs; ++at) {
      if (!joins(at)) from[k++] = place(input(at), begin);
    }
    loops_.sum(top, from, regular.inputs, count);
  }

  void push(std::byte* top, const TreeInput& input, std::size_t begin, std::size_t count) const {
    if (input.partial) {
      std::memcpy(top, place(input, begin), count * loops_.accumulator_bytes);
    } else {
      loops_.load(top, place(input, begin), count, job_.scaling.prescale);
    }
  }

  // Joins a leaf with the top of the stack. The leaf needs a block of the stack only if it is scaled.
  void fold(std::byte* top, const TreeInput& input, std::size_t begin, std::size_t count) const {
    if (input.partial) return loops_.join(top, place(input, begin), count);
    if (job_.scaling.prescale == 1.0) return loops_.join_input(top, place(input, begin), count);
    loops_.load(top + block_bytes_, place(input, begin), count, job_.scaling.prescale);
    loops_.join(top, top + block_bytes_, count);
  }

  const BlockLoops& loops_;
  const TreeJob& job_;
  const std::size_t block_bytes_;
};

}  // namespace

bool is_regular_and_plain(const TreeJob& job, bool alike) {
  for (int k = 0; k < job.regular; ++k) {
    if (!reads_plainly(job.inputs[k], alike, job.scaling)) return false;
  }
  return job.regular > 0;
}

void run_blocks(const BlockLoops& loops, const TreeJob& job) {
  const Scaling finish{1.0, job.scaling.postscale, job.scaling.divisor};
  const BlockRunner runner(loops, job);
  const std::size_t width = job.to_partial ? loops.accumulator_bytes : loops.stored_bytes;
  for (std::size_t begin = 0; begin < job.count; begin += kKernelBlock) {
    const std::size_t count = std::min(kKernelBlock, job.count - begin);
    const std::byte* const sum = runner.run(begin, count);
    std::byte* const out = job.outs[0] + begin * width;
    if (job.to_partial) {
      std::memcpy(out, sum, count * width);
    } else {
      loops.store(sum, out, count, finish);
    }
    for (std::size_t k = 1; k < job.out_count; ++k) std::memcpy(job.outs[k] + begin * width, out, count * width);
  }
}

}  // namespace horo
