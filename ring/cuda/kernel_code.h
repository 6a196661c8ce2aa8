// What a thread of a kernel does, as templates for both compilers: nvcc makes the kernels of them (kernels.cu), and g++
// those of the fakes in the tests. The arithmetic is that of the CPU's kernels (ring/reduce/element.h), whose functions
// are constexpr for this reason. The order of operations of an element is that of the tree, so its bits are those of
// reduce_tree().
//
// Memory is a type with the loads and stores of the compiler, and with the thread's stack. Internal linkage, as in
// element.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ring/cuda/kernel_args.h"
#include "ring/reduce/element.h"

namespace horo {
namespace {

// The elements of a pack: 16 bytes as they are stored, but at most 8 elements, which are 32 bytes as accumulators.
template <class Element>
constexpr std::size_t pack_of() {
  const std::size_t most = 16 / sizeof(typename Element::Stored);
  return most < 8 ? most : 8;
}

// The sums of gradients have kernels of their own: a regular tree is a piece of code, its loads are under way together.
template <class Element>
inline constexpr bool kHasSumKernel = std::is_floating_point_v<typename Element::Accumulator> &&
                                      sizeof(typename Element::Stored) > 1;

// The operation that the parameters name. Kernels for it are smaller than those for each operation are together.
struct AnyOp {};

// Elements as they are stored.
template <class Element, std::size_t kCount>
struct alignas(kCount * sizeof(typename Element::Stored)) StoredPack {
  typename Element::Stored each[kCount];
};
template <class Element, std::size_t kCount>
struct alignas(std::min(std::size_t{16}, kCount * sizeof(typename Element::Accumulator))) ValuePack {
  typename Element::Accumulator each[kCount];
};

// The operands of one thread at `first`, an element, and the elements behind.
template <class Memory, class Element, std::size_t kCount>
struct Operands {
  using Stored = StoredPack<Element, kCount>;
  using Values = ValuePack<Element, kCount>;

  const ReduceArgs& args;
  Memory memory;
  std::size_t first;

  constexpr Stored load(std::size_t input) const {
    const std::byte* const at = args.inputs[input] + first * sizeof(typename Element::Stored);
    return memory.template load<Stored>(at, kCount == 1 && args.by_bytes);
  }

  constexpr Values widened(const Stored& stored) const {
    Values values{};
    for (std::size_t i = 0; i < kCount; ++i) values.each[i] = Element::load(stored.each[i]);
    if (args.prescales) {
      for (auto& value : values.each) value = Element::scaled(value, args.prescale);
    }
    return values;
  }

  constexpr void finish(Values values) const {
    if (args.finishes) {
      for (auto& value : values.each) value = Element::finished(value, args.divisor, args.postscale);
    }
    Stored stored{};
    for (std::size_t i = 0; i < kCount; ++i) stored.each[i] = Element::store(values.each[i]);
    std::byte* const at = args.out + first * sizeof(typename Element::Stored);
    memory.store(at, stored, kCount == 1 && args.by_bytes);
  }
};

template <class Op, class Values>
constexpr void join_each(Values& a, const Values& b) {
  if constexpr (kApplies<Op, std::remove_extent_t<decltype(a.each)>>) {
    for (std::size_t i = 0; i < std::extent_v<decltype(a.each)>; ++i) a.each[i] = Op::apply(a.each[i], b.each[i]);
  }
}

template <class Op, class Values>
constexpr Values joined(Values a, const Values& b, ReduceOp op) {
  if constexpr (!std::is_same_v<Op, AnyOp>) {
    join_each<Op>(a, b);
  } else if (op == ReduceOp::kSum) {
    join_each<Sum>(a, b);
  } else if (op == ReduceOp::kProduct) {
    join_each<Product>(a, b);
  } else if (op == ReduceOp::kMin) {
    join_each<Min>(a, b);
  } else if (op == ReduceOp::kMax) {
    join_each<Max>(a, b);
  } else if (op == ReduceOp::kBitAnd) {
    join_each<BitAnd>(a, b);
  } else if (op == ReduceOp::kBitOr) {
    join_each<BitOr>(a, b);
  } else {
    join_each<BitXor>(a, b);
  }
  return a;
}

// The combination of kInputs packs in the regular tree, in registers.
template <class Op, std::size_t kInputs, class Place, class Stored>
constexpr typename Place::Values regular_tree(const Place& place, const Stored* stored) {
  if constexpr (kInputs == 1) {
    return place.widened(*stored);
  } else {
    return joined<Op>(regular_tree<Op, kInputs / 2>(place, stored),
                      regular_tree<Op, kInputs / 2>(place, stored + kInputs / 2), place.args.op);
  }
}

// All loads precede the arithmetic, so that they are under way together.
template <class Op, std::size_t kInputs, class Place>
constexpr typename Place::Values push_regular(const Place& place, std::size_t next) {
  typename Place::Stored stored[kInputs]{};
  for (std::size_t i = 0; i < kInputs; ++i) stored[i] = place.load(next + i);
  return regular_tree<Op, kInputs>(place, stored);
}

// Runs the program. kIsUnrolled: with the regular trees as pieces of code, else as loops over their inputs.
template <class Op, bool kIsUnrolled, class Place>
constexpr void run_program(const Place& place) {
  typename Place::Values top{};
  std::size_t level = 0, next = 0;  // level: values in the stack, below the topmost one
  const auto join = [&] {
    top = joined<Op>(place.memory.template pop<typename Place::Values>(--level), top, place.args.op);
  };
  for (std::size_t at = 0; at < place.args.steps; ++at) {
    const std::size_t inputs = place.args.program[at];
    if (inputs == 0) {
      join();
    } else if constexpr (kIsUnrolled) {
      if (next > 0) place.memory.push(level++, top);
      top = inputs == 8   ? push_regular<Op, 8>(place, next)
            : inputs == 4 ? push_regular<Op, 4>(place, next)
            : inputs == 2 ? push_regular<Op, 2>(place, next)
                          : push_regular<Op, 1>(place, next);
      next += inputs;
    } else {
      for (std::size_t leaf = 1; leaf <= inputs; ++leaf) {
        if (next > 0) place.memory.push(level++, top);
        top = place.widened(place.load(next++));
        for (std::size_t bits = leaf; bits % 2 == 0; bits /= 2) join();
      }
    }
  }
  place.finish(top);
}

// What thread `thread` of `threads` does.
template <class Element, class Op, class Memory>
constexpr void reduce_by_thread(const ReduceArgs& args, const Memory& memory, std::uint64_t thread,
                                std::uint64_t threads) {
  constexpr std::uint64_t kPack = pack_of<Element>();
  for (std::uint64_t pack = thread; pack < args.packs; pack += threads) {
    run_program<Op, std::is_same_v<Op, Sum>>(Operands<Memory, Element, kPack>{args, memory, args.head + pack * kPack});
  }
  const std::uint64_t others = args.count - args.packs * kPack;
  for (std::uint64_t other = thread; other < others; other += threads) {
    const std::uint64_t at = other < args.head ? other : other + args.packs * kPack;
    run_program<Op, false>(Operands<Memory, Element, 1>{args, memory, at});
  }
}

template <class Unit, class Memory>
constexpr void copy_unit(const Memory& memory, const std::byte* from, std::byte* to, std::uint32_t at) {
  memory.store(to + at * sizeof(Unit), memory.template load<Unit>(from + at * sizeof(Unit), false), false);
}

// Four loads of a lane are under way together.
template <class Unit, class Memory>
constexpr void copy_units(const Memory& memory, const std::byte* from, std::byte* to, std::uint32_t units) {
  constexpr std::uint32_t kTogether = 4;
  for (std::uint32_t first = memory.lane(); first < units; first += kTogether * Memory::kLanes) {
    Unit loaded[kTogether]{};
    for (std::uint32_t i = 0; i < kTogether; ++i) {
      const std::uint32_t at = first + i * Memory::kLanes;
      if (at < units) loaded[i] = memory.template load<Unit>(from + at * sizeof(Unit), false);
    }
    for (std::uint32_t i = 0; i < kTogether; ++i) {
      const std::uint32_t at = first + i * Memory::kLanes;
      if (at < units) memory.store(to + at * sizeof(Unit), loaded[i], false);
    }
  }
}

struct alignas(16) CopyUnit {
  std::uint32_t words[4];
};

// What a lane does for a chunk of which both sides are aligned alike for a type: it copies units of it, and a byte
// before and behind them. Each of these has a lane of its own.
template <class Unit, class Memory>
constexpr void copy_aligned(const Memory& memory, const std::byte* from, std::byte* to, std::uint32_t bytes) {
  static_assert(sizeof(Unit) <= Memory::kLanes);
  constexpr auto kUnit = static_cast<std::uint32_t>(sizeof(Unit));
  const auto before = static_cast<std::uint32_t>((0 - memory.address(to)) % kUnit);
  const std::uint32_t head = before < bytes ? before : bytes;
  const std::uint32_t units = (bytes - head) / kUnit;
  const std::uint32_t done = head + units * kUnit;
  if (memory.lane() < head) copy_unit<std::uint8_t>(memory, from, to, memory.lane());
  copy_units<Unit>(memory, from + head, to + head, units);
  if (memory.lane() < bytes - done) copy_unit<std::uint8_t>(memory, from + done, to + done, memory.lane());
}

template <class Memory>
constexpr void copy_chunk(const CopyArgs& args, const Memory& memory, std::uint32_t chunk) {
  std::uint32_t row = 0, end = args.rows - 1;  // row becomes the first one whose chunks end behind this chunk
  while (row < end) {
    const std::uint32_t middle = (row + end) / 2;
    if (args.ends[middle] > chunk) {
      end = middle;
    } else {
      row = middle + 1;
    }
  }
  const std::uint64_t begin = kCopyChunk * (chunk - (row == 0 ? 0 : args.ends[row - 1]));
  const std::uint64_t left = args.bytes[row] - begin;
  const auto bytes = static_cast<std::uint32_t>(left < kCopyChunk ? left : kCopyChunk);
  const std::byte* const from = args.from[row] + begin;
  std::byte* const to = args.to[row] + begin;
  const std::uint64_t apart = memory.address(from) ^ memory.address(to);
  if (apart % 16 == 0) return copy_aligned<CopyUnit>(memory, from, to, bytes);
  if (apart % 4 == 0) return copy_aligned<std::uint32_t>(memory, from, to, bytes);
  if (apart % 2 == 0) return copy_aligned<std::uint16_t>(memory, from, to, bytes);
  copy_units<std::uint8_t>(memory, from, to, bytes);
}

}  // namespace
}  // namespace horo
